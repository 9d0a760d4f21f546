"""A folder with a package `caffe` in it that is caffejax: on Python's path, it serves scripts that say `import caffe`.

`caffejax run` puts it there for a script and the processes that it starts; the distribution caffejax-shim installs it.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
