//! Fencing tokens rise over a restart.

use support::Setup;

#[test]
fn tokens_rise_over_restart_with_aof_and_rdb() {
    const AHEAD: i64 = 9_000_000_000_000_000;
    for (config, how) in [("appendonly yes\nappendfsync always", "NOSAVE"), ("", "SAVE")] {
        let setup = Setup::new().config(config);
        let mut server = setup.start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
        alice.ok(&format!("SET counter {AHEAD} PX 600000"));
        let end = alice.expires_at("counter");
        assert_eq!(alice.run("LOCK.FENCE door alice counter"), AHEAD + 1);
        server.shut_down(how);
        let again = setup.in_directory_of(&server).start();
        let mut alice = again.client();
        assert_eq!(alice.run("LOCK.FENCE door alice counter"), AHEAD + 2, "{how}");
        assert_eq!(alice.expires_at("counter"), end, "{how}");
    }
}
