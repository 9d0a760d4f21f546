// The visible part of the drawing, which dragging, the wheel, pinching and keys move.

const ZOOM = { least: 0.01, most: 3, far: 0.34 };

class Camera {
  constructor(surface, stage) {
    Object.assign(this, { surface, stage, x: 0, y: 0, scale: 1, drawn: { width: 1, height: 1 }, covered: 0, moved: false });
    this.fingers = new Map();
    surface.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    surface.addEventListener("pointerdown", (event) => this.down(event));
    surface.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) surface.addEventListener(name, (event) => this.up(event));
  }

  // The size of the visible area beside the panel.
  get room() {
    return { width: Math.max(80, this.surface.clientWidth - this.covered), height: this.surface.clientHeight };
  }

  show() {
    this.stage.setAttribute("transform", `translate(${this.x},${this.y}) scale(${this.scale})`);
    this.surface.classList.toggle("far", this.scale < ZOOM.far);
  }

  wheel(event) {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 18 : 1;
    if (event.ctrlKey || event.metaKey) {
      this.zoom(Math.exp(-event.deltaY * unit * 0.0045), event.clientX, event.clientY);
    } else {
      const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
      this.pan(-dx * unit, -dy * unit);
    }
  }

  down(event) {
    if (event.button) return;
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY, distance: 0 });
  }

  move(event) {
    const finger = this.fingers.get(event.pointerId);
    if (!finger) return;
    const [dx, dy] = [event.clientX - finger.x, event.clientY - finger.y];
    finger.distance += Math.hypot(dx, dy);
    if (finger.distance < 4) return;
    this.surface.setPointerCapture(event.pointerId);
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = (x, y) => Math.max(1, Math.hypot(x - other.x, y - other.y));
      this.zoom(apart(event.clientX, event.clientY) / apart(finger.x, finger.y), other.x, other.y);
    } else {
      this.pan(dx, dy);
    }
    Object.assign(finger, { x: event.clientX, y: event.clientY });
  }

  up(event) {
    this.moved = (this.fingers.get(event.pointerId)?.distance ?? 0) >= 4; // so that a drag is no click
    this.fingers.delete(event.pointerId);
  }

  pan(dx, dy) {
    [this.x, this.y] = [this.x + dx, this.y + dy];
    this.keepNear();
    this.show();
  }

  // Scales the drawing by a factor around a point of the window.
  zoom(factor, clientX, clientY) {
    const { left, top } = this.surface.getBoundingClientRect();
    const scale = Math.min(ZOOM.most, Math.max(ZOOM.least, this.scale * factor));
    const [x, y] = [(clientX ?? left + this.room.width / 2) - left, (clientY ?? top + this.room.height / 2) - top];
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.keepNear();
    this.show();
  }

  // Keeps a part of the drawing visible.
  keepNear() {
    const { width, height } = this.room;
    const near = (at, size, room) => Math.min(room - 60, Math.max(60 - size * this.scale, at));
    [this.x, this.y] = [near(this.x, this.drawn.width, width), near(this.y, this.drawn.height, height)];
  }

  // Shows the full drawing.
  fit() {
    const { width, height } = this.room;
    this.scale = Math.min(1, (width - 40) / this.drawn.width, (height - 40) / this.drawn.height);
    this.x = (width - this.drawn.width * this.scale) / 2;
    this.y = (height - this.drawn.height * this.scale) / 2;
    this.show();
  }

  // Shows the beginning of the net at a readable size.
  start() {
    const { width } = this.room;
    this.scale = Math.min(1, Math.max(0.5, (width - 40) / this.drawn.width));
    this.x = (width - this.drawn.width * this.scale) / 2;
    this.y = 24;
    this.show();
  }

  // Makes a rectangle of the drawing visible; with `centre`, moves it to the middle.
  reveal({ x, y, width, height }, centre = false) {
    if (this.scale < ZOOM.far) this.scale = 0.8;
    const room = this.room;
    const along = (at, from, size, space) => {
      const start = at + from * this.scale;
      const outside = start < 30 || start + size * this.scale > space - 30;
      return centre || outside ? space / 2 - (from + size / 2) * this.scale : at;
    };
    this.x = along(this.x, x, width, room.width);
    this.y = along(this.y, y, height, room.height);
    this.show();
  }
}
