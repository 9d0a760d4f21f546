"""A folder with a package `caffe`. If the folder is on Python's path, `import caffe` imports caffejax.

`caffejax run` adds the folder to the path of a script and of the processes that the script starts. The distribution
caffejax-shim installs the package `caffe`.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
