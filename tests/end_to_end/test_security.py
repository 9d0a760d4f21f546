"""The promises of docs/security.md: no network, limits by name, no control characters in drawings."""

import inspect
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from caffejax import NetConfig
from caffejax.base.config import LIMIT_FIELDS
from caffejax.cli import main

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "security.md"

SCRIPT_WITHOUT_NETWORK = """
import socket, sys

def refuse(*args, **kwargs):
    raise SystemExit("asked for the network")

for name in ("connect", "connect_ex", "bind", "sendto"):
    setattr(socket.socket, name, refuse)
socket.getaddrinfo = socket.gethostbyname = socket.create_connection = refuse
from caffejax.cli import main
sys.exit(main(sys.argv[1:]))
"""
SOLVER = """
net_param { layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 } data_filler { type: "gaussian" } data_filler { } } }
  layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
    inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" } }
base_lr: 0.01 lr_policy: "fixed" max_iter: 3 display: 1 snapshot: 2 snapshot_prefix: "s"
"""


@pytest.mark.long
def test_training_uses_no_network(tmp_path: Path) -> None:
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    (tmp_path / "run.py").write_text(SCRIPT_WITHOUT_NETWORK)
    command = [sys.executable, "run.py", "train", "--solver=solver.prototxt"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "Optimization Done" in result.stderr
    assert (tmp_path / "s_iter_3.caffemodel").exists()


def test_the_page_names_every_limit_with_its_default() -> None:
    text = PAGE.read_text()
    rows = dict(re.findall(r"^\| `--(\w+)` \| ([\d,]+|off)", text, re.MULTILINE))
    defaults = {name: inspect.signature(NetConfig).parameters[name].default for name in LIMIT_FIELDS}
    assert rows == {name: f"{value:,}" if value else "off" for name, value in defaults.items()}
    assert "(docs/security.md)" in (REPOSITORY / "README.md").read_text()


@pytest.mark.parametrize("name", ["\x01\x1b[31m\x7f", "\x00nul", "a\u2028b\ufffe", "<&]]>\"'"])
def test_names_with_any_characters_are_drawn_to_well_formed_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quoted = "".join(f"\\{byte:03o}" for byte in name.encode())
    text = f'name: "{quoted}" layer {{ name: "{quoted}" type: "ReLU" bottom: "{quoted}x" top: "{quoted}y" }}'
    Path("net.prototxt").write_text(text)
    assert main(["draw_net", "net.prototxt", "net.svg"]) == 0
    assert "ReLU" in "".join(ET.fromstring(Path("net.svg").read_bytes()).itertext())
    Path("plain.prototxt").write_text(text.replace(quoted, "plain"))
    pages = []
    for net in ("net", "plain"):
        main(["view", f"{net}.prototxt", f"--out={net}.html"])
        page = Path(f"{net}.html").read_bytes()
        pages.append((len(re.findall(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", page)), page.count(b"</script")))
    assert pages[0] == pages[1]
