"""A terminal for tests of commands: they run in this process, and what they print is returned."""

from __future__ import annotations

from typer.testing import CliRunner

from fedbo.cli.app import app


def run(*arguments: object, code: int = 0, columns: int = 200, stdin: str | None = None) -> str:
    """Run a command of `fedbo`; return all that it printed, and check its exit code."""
    terminal = {"COLUMNS": f"{columns}", "TERM": "dumb", "NO_COLOR": "1"}
    result = CliRunner().invoke(app, [*map(str, arguments)], env=terminal, input=stdin)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.output


def said(*arguments: object, code: int = 0, columns: int = 200, stdin: str | None = None) -> str:
    """The same, wherever lines break and whatever is drawn around them."""
    text = run(*arguments, code=code, columns=columns, stdin=stdin)
    return " ".join(text.replace("│", " ").split())
