"""The master's end of every actor's line: who is connected, when it was heard, what it is told."""

import time

import msgspec

from folkmoot.unified.control import OBEY, Beat, Membership, Order, Status, encode
from folkmoot.unified.rpc.connection import RpcConnection
from folkmoot.unified.substrate import Name


class Contact(msgspec.Struct):
    """What is known of one actor's process, beside the machine's state."""

    status: Status | None = None
    connection: RpcConnection | None = None
    heard: float = 0.0  # monotonic seconds; 0 while nothing is to be heard from it yet
    progress: int = 0
    progressed: float = 0.0
    numbers: dict[str, object] = {}


class Contacts:
    """Orders for an actor that is not connected yet are kept until it is: only the newest count."""

    def __init__(self) -> None:
        self._contacts: dict[Name, Contact] = {}
        self._waiting: dict[Name, dict[type, Order]] = {}
        self._membership: Membership | None = None

    def __getitem__(self, name: Name) -> Contact:
        return self._contacts.setdefault(name, Contact())

    def find(self, name: Name) -> Contact | None:
        return self._contacts.get(name)

    def all(self) -> list[tuple[Name, Contact]]:
        return list(self._contacts.items())

    def connected(self, name: Name, connection: RpcConnection) -> None:
        contact = self[name]
        contact.connection, contact.heard = connection, time.monotonic()
        orders = self._waiting.pop(name, {}).values()
        for order in (*((self._membership,) if self._membership else ()), *orders):
            connection.call(OBEY, encode(order))

    def broke(self, name: Name, connection: RpcConnection) -> None:
        contact = self._contacts.get(name)
        if contact and contact.connection is connection:
            contact.connection = None

    def order(self, name: Name, order: Order) -> None:
        connection = self[name].connection
        if connection and not connection.closed:
            connection.call(OBEY, encode(order))
        else:
            self._waiting.setdefault(name, {})[type(order)] = order

    def tell_all(self, membership: Membership) -> None:
        self._membership = membership
        encoded = encode(membership)
        for contact in self._contacts.values():
            if contact.connection and not contact.connection.closed:
                contact.connection.call(OBEY, encoded)

    def took(self, told: Status | Beat) -> Contact:
        now = time.monotonic()
        contact = self[told.name]
        contact.heard = now
        if isinstance(told, Status):
            if contact.status is None or told.stage is not contact.status.stage:
                contact.progressed = now
            contact.status = told
        elif told.progress != contact.progress:
            contact.progress, contact.progressed, contact.numbers = told.progress, now, told.numbers
        return contact

    def forget(self, name: Name) -> None:
        self._contacts.pop(name, None)
        self._waiting.pop(name, None)

    def excuse_all(self) -> None:
        """Nobody could be heard for a while, through no fault of theirs."""
        now = time.monotonic()
        for contact in self._contacts.values():
            contact.heard = contact.heard and now
            contact.progressed = now
