"""Adds to the package of pyproject.toml a .pth file, by which Python imports `caffe_import_hook` when it starts."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithHook(build_py):
    """Copies the .pth file beside the modules."""

    def run(self) -> None:
        """Build the modules."""
        super().run()
        self.copy_file("caffe_import_hook.pth", str(Path(self.build_lib) / "caffe_import_hook.pth"))


setup(cmdclass={"build_py": BuildWithHook})
