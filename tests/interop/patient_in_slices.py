"""A wait of 20 s in slices of 2 s, each shorter than the client library's time-out."""

from harness import connect, lock, run
from patient import Thread, is_served_first


def wait(command, key, token):
    client = connect()
    hold = ("HOLD", 1) if command == "REENTER" else ()
    while True:
        answer = lock(client, command, key, token, "PX", 60000, "BLOCK", 2000, *hold)
        if answer is not None:
            return answer


def check_a_wait_in_slices_keeps_its_place():
    both = [Thread(lambda c=command: is_served_first(wait, c, 9) or True) for command in ("ACQUIRE", "REENTER")]
    assert [thread.result_within(50) for thread in both] == [True, True]


run(globals())
