"""All objects of one namespace of which each is a run, or a schedule of runs."""

from collections.abc import Callable, Mapping
from typing import Any

from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs.backups import Backups
from quorate_operator.declared.runs.recoveries import LedZone, Recoveries
from quorate_operator.declared.runs.repairs import Repairs
from quorate_operator.declared.runs.restores import Restores
from quorate_operator.declared.runs.schedules import Schedules
from quorate_operator.declared.runs.validations import Validations
from quorate_operator.declared.runs.writers import Writers
from quorate_operator.kube.api import KubeApi

_OneKind = Recoveries | Validations | Schedules | Backups | Restores | Repairs


class Runs:
    """The runs of one namespace, by kind.

    `find`: returns the led zone of that name, or a sentence on what is waited for.  `image`: of the
    pods; empty: none can be made.  `on_result`: called with the name of a zone whose verdict is
    new.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_result: Callable[[str], None],
    ) -> None:
        self.validations = Validations(api, namespace, find, image, on_result)
        writers = Writers(api, namespace, find)
        self._of: dict[Kind, _OneKind] = {
            Kind.RECOVERY: Recoveries(api, namespace, find),
            Kind.VALIDATION: self.validations,
            Kind.SCHEDULE: Schedules(api, namespace, self.validations),
            Kind.BACKUP: Backups(api, namespace, find, image, writers),
            Kind.RESTORE: Restores(api, namespace, find, image, writers),
            Kind.REPAIR: Repairs(api, namespace, find, image, writers),
        }

    def __bool__(self) -> bool:
        """Whether any object is still to be run, or is a schedule."""
        return any(self._of.values())

    def seen(self, kind: Kind, body: Mapping[str, Any]) -> bool:
        """Take an object that is new or changed; return whether it is to be looked at."""
        return self._of[kind].seen(body)

    def gone(self, kind: Kind, name: str) -> None:
        """Forget an object that was deleted."""
        self._of[kind].gone(name)

    async def reconcile(self, kind: Kind, name: str) -> float | None:
        """Run an object, if it can be; return the seconds until it is to be looked at again.

        None: there is nothing more to do.  Raises the API's errors.
        """
        return await self._of[kind].reconcile(name)
