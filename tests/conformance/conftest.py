"""Says at the end of a run which cases were not applicable, and why."""

from collections.abc import Callable
from typing import NoReturn

import pytest

_reasons = pytest.StashKey[dict[str, int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_reasons] = {}


@pytest.fixture
def not_applicable(request: pytest.FixtureRequest) -> Callable[[str], NoReturn]:
    """End this case here; its reason is in the run's last lines, with the number of such cases."""

    def end(reason: str) -> NoReturn:
        reasons = request.config.stash[_reasons]
        reasons[reason] = reasons.get(reason, 0) + 1
        pytest.skip(f"not applicable: {reason}")  # and the last lines of the run count it

    return end


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    reasons = config.stash[_reasons]
    if reasons:
        terminalreporter.section("conformance cases that are not applicable", sep="-", yellow=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count}: {reason}")
