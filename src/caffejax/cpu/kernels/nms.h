// Non-maximum suppression on the host, with the same results as `non_max_suppression` in layers/boxes.py. XLA needs 2
// to 3 s to compile that function for each input size; this function takes 1 ms (docs/development/performance.md).

#ifndef CAFFEJAX_KERNELS_NMS_H_
#define CAFFEJAX_KERNELS_NMS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace caffejax {

struct Box {
  float x1, y1, x2, y2;

  float Area() const { return x2 < x1 || y2 < y1 ? 0 : (x2 - x1) * (y2 - y1); }
};

// Intersection over union; 0 for disjoint boxes.
inline float Overlap(const Box& a, const Box& b, float area_a, float area_b) {
  float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1), height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  float inside = width > 0 && height > 0 ? width * height : 0;
  float both = area_a + area_b - inside;
  return both > 0 ? inside / both : 0;
}

// Goes through n boxes, which are sorted by descending score, and selects each box that overlaps no selected box by
// more than the threshold. If `eta` is below 1, the threshold is multiplied by `eta` after every selected box, while it
// is above 0.5. Returns the number of selected boxes, and writes their indices to `selected`, which has n elements.
inline int64_t Suppress(const Box* boxes, int64_t n, float threshold, float eta, int64_t* selected) {
  std::vector<float> areas(n);
  for (int64_t i = 0; i < n; ++i) areas[i] = boxes[i].Area();
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    bool stays = true;
    for (int64_t k = 0; stays && k < count; ++k) {
      stays = !(Overlap(boxes[selected[k]], boxes[i], areas[selected[k]], areas[i]) > threshold);
    }
    if (!stays) continue;
    selected[count++] = i;
    if (eta < 1 && threshold > 0.5f) threshold *= eta;
  }
  return count;
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_NMS_H_
