"""Shell completion, tested in bash."""

import shutil
import subprocess

import pytest

from caffejax.cli import main

pytest.importorskip("shtab", reason="needs shtab")


def complete(script: str, words: list[str]) -> list[str]:
    """Return the completions that bash offers for the last of these words."""
    completion_call = f"""
    COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
    _shtab_caffejax caffejax {words[-1]} {words[-2]}; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(["bash", "-c", f"{script}\n{completion_call}"], capture_output=True, text=True, check=True)
    return result.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completions"),
    [
        (["caffejax", "tra"], ["train"]),
        (["caffejax", "train", "--sn"], ["--snapshot"]),
        (["caffejax", "time", "--phase", "TE"], ["TEST"]),
        (["caffejax", "summary", "--js"], ["--json"]),
    ],
)
def test_bash_completes(words: list[str], completions: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert complete(capsys.readouterr().out, words) == completions


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_get_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "caffejax" in capsys.readouterr().out
