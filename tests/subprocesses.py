"""Programs that tests start beside themselves."""

import subprocess
from typing import Any


class Program(subprocess.Popen[str]):
    """A process with text pipes that is over when the block that it is used in is, also where that fails."""

    def __init__(self, command: list[str], **options: Any) -> None:
        super().__init__(command, text=True, **options)

    def __exit__(self, exception_type: type[BaseException] | None, *error: Any) -> None:
        if exception_type is not None:
            self.kill()
        super().__exit__(exception_type, *error)
