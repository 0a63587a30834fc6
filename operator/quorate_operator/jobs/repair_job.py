"""The work of a ZoneRepair's pod: it makes a plan, or executes one, or does both.

A pod after the first one finds the plan of its run by `--run`, and goes on with it.  It writes into
the place of the plan, also of one that is only executed: that keys may be changed now.  An exit
code of 1 says that another run ends the same way.
"""

from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate_operator import names
from quorate_operator.jobs.backup_job import at_place
from quorate_operator.jobs.job import Copies, Work, zone_arguments

ENDS_THE_SAME = 1
"""The exit code of a repair that another pod would end the same way."""
REPAIR = Work("repair", names.LABEL_REPAIR, final_codes=(ENDS_THE_SAME,))


def repair_work(repair: ZoneRepair, copies: Copies) -> Work:
    """Return the work of its pod.  One that writes has the Zone's uid in its labels."""
    spec, plan = repair.spec, repair.spec.plan
    chosen = (
        (f"--strategy={spec.strategy}", f"--level={spec.level.lower()}")
        if plan is None
        else (f"--digest={plan.digest}",)
    )
    arguments = (
        *zone_arguments("repair-run", spec.zone_ref.name, copies),
        f"--target={spec.place.target}",
        f"--run={repair.metadata.uid}",
        f"--zone-uid={copies.uid}",
        *chosen,
        *spec.limit_options,
        *(() if spec.dry_run else ("--execute",)),
    )
    labels = () if spec.dry_run else ((names.LABEL_ZONE_UID, copies.object_uid),)
    made = REPAIR._replace(arguments=arguments, labels=labels)
    return at_place(made, spec.place)
