"""Download dagre, the layout library of `caffejax view`, through npm. Its MIT licence is stored beside it.

dagre was taken rather than elkjs 0.12: at 1,000 layers both take 0.3 to 1.1 s, and elkjs has 1.6 MB to dagre's 49 kB,
under the Eclipse licence.
"""

import subprocess
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "@dagrejs/dagre", "3.1.3"
TARGET = Path(__file__).parents[1] / "src" / "caffejax" / "tools" / "view" / "assets" / "dagre"
FILES = {"package/dist/dagre.min.js": "dagre.min.js", "package/LICENSE": "LICENSE"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", folder], check=True)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            for member, name in FILES.items():
                content = tar.extractfile(member)
                assert content is not None
                (TARGET / name).write_bytes(content.read())
    print(f"Wrote {PACKAGE} {VERSION} to {TARGET}")


if __name__ == "__main__":
    main()
