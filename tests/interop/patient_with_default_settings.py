"""A wait of 20 s in one call, which the client library times out and sends again by itself."""

from harness import connect, lock, run
from patient import Thread, is_served_first


def wait(command, key, token):
    hold = ("HOLD", 1) if command == "REENTER" else ()
    return lock(connect(), command, key, token, "PX", 60000, "BLOCK", 30000, *hold)


def check_the_default_settings_time_out_and_send_again():
    settings = connect().connection_pool.connection_kwargs
    connection = connect().connection_pool.make_connection()
    assert connection.socket_timeout == 5, settings
    assert connection.retry.get_retries() >= 3, settings


def check_a_wait_that_is_sent_again_keeps_its_place():
    both = [Thread(lambda c=command: is_served_first(wait, c, 3) or True) for command in ("ACQUIRE", "REENTER")]
    assert [thread.result_within(50) for thread in both] == [True, True]


run(globals())
