"""How the actors of a job are made: what each process is born with."""

from folkmoot.core.job import JobSpec
from folkmoot.core.job.messages import Create
from folkmoot.core.job.state import is_sub_master, role_of
from folkmoot.unified.control import Birth, encode
from folkmoot.unified.master.home import Home
from folkmoot.unified.substrate import Launch

MAIN = "folkmoot.unified.actor_main:main"


class Launches:
    def __init__(self, home: Home, spec: JobSpec, master: str) -> None:
        self._home, self._spec, self._master = home, spec, master
        self._secret, self._settings = home.secret(), home.settings()

    def of(self, order: Create) -> Launch:
        role = self._spec.roles[role_of(order.actor)]
        birth = Birth(
            spec=self._spec,
            actor=order.actor,
            incarnation=order.incarnation,
            node=order.node,
            secret=self._secret,
            master=self._master,
            listen=self._home.listen(order.actor, order.incarnation),
            alone=self._settings.alone,
        )
        return Launch(
            actor=order.actor,
            incarnation=order.incarnation,
            main=MAIN,
            argument=encode(birth),
            env={**self._spec.env, **role.env},
            log=str(self._home.log(order.actor)),
            node=order.node,
            # A sub-master only talks: it takes nothing from the workers' places.
            needs={} if is_sub_master(order.actor) else role.resource.amounts(),
        )
