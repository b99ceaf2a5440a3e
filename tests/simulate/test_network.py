"""The simulated network and clock do to messages what their faults say."""

from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node


def settle(loop: Loop) -> None:
    while loop.step():
        pass


def pair() -> tuple[Loop, Network, Node, Node, list[int]]:
    loop = Loop(1)
    return loop, Network(loop), Node(loop), Node(loop), []


def test_messages_overtake_each_other() -> None:
    loop, network, a, b, heard = pair()
    for number in range(50):
        network.send(a, b, heard.append, number)
    settle(loop)
    assert sorted(heard) == list(range(50))
    assert heard != sorted(heard)


def test_a_cut_parts_the_two_sides_until_it_heals() -> None:
    loop, network, a, b, heard = pair()
    network.cut([a])
    network.send(a, b, heard.append, 1)
    network.heal()
    network.send(a, b, heard.append, 2)
    settle(loop)
    assert heard == [2]


def test_messages_are_lost_and_doubled() -> None:
    loop, network, a, b, heard = pair()
    network.loss, network.duplication = 0.5, 0.5
    for number in range(200):
        network.send(a, b, heard.append, number)
    settle(loop)
    assert len(set(heard)) < 200
    assert len(heard) > len(set(heard))


def test_a_frozen_node_hears_everything_later_and_a_crashed_one_nothing() -> None:
    loop, network, a, b, heard = pair()
    b.freeze(5000)
    network.send(a, b, heard.append, 1)
    settle(loop)
    assert (heard, loop.now) == ([1], 5000)
    b.crash(5000)
    network.send(a, b, heard.append, 2)
    settle(loop)
    assert (heard, b.up) == ([1], True)


def test_timers_follow_the_nodes_own_clock_and_die_with_it() -> None:
    loop, _, a, b, heard = pair()
    a.rate = 2.0
    a.after(1000, heard.append, 1)
    b.after(100, heard.append, 2)
    b.crash(10)
    settle(loop)
    assert (heard, loop.now) == ([1], 500)


def test_a_call_is_answered_once_or_given_up() -> None:
    loop, network, a, b, heard = pair()
    network.duplication = 1.0
    network.call(a, b, heard.append, 1000, lambda number: number + 1, 1)
    settle(loop)
    network.loss = 1.0
    network.call(a, b, heard.append, 1000, lambda number: number + 1, 5)
    settle(loop)
    assert heard == [2, None]


def test_who_crashed_after_it_asked_does_not_hear_the_answer() -> None:
    loop, network, a, b, heard = pair()
    network.call(a, b, heard.append, 1000, lambda: 1)
    a.crash(1)
    settle(loop)
    assert heard == []
