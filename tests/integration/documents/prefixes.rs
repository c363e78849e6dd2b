//! Key prefixes of client libraries: docs/guides/migration.md says that LOCK commands do not get them.

use std::time::Duration;

use support::Server;

use super::programs::{Running, is_installed};

const LIMIT: Duration = Duration::from_secs(60);

/// The language, the library's own lock on `door` with the prefix `shop:`, and a LOCK command for `door`.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "javascript",
        "import Redis from 'ioredis'
const client = new Redis(6379, { keyPrefix: 'shop:' })
await client.set('door', 'old', 'PX', 60000, 'NX')
await client.duplicate().call('LOCK.ACQUIRE', 'door', 'new', 'PX', 60000)
process.exit()",
    ),
    (
        "php",
        "$client = new Redis();
$client->connect('127.0.0.1', 6379);
$client->setOption(Redis::OPT_PREFIX, 'shop:');
$client->set('door', 'old', ['nx', 'px' => 60000]);
$client->rawCommand('LOCK.ACQUIRE', 'door', 'new', 'PX', '60000');",
    ),
];

#[test]
fn key_prefix_is_not_added_to_lock_commands() {
    for (language, program) in PROGRAMS.into_iter().filter(|(language, _)| is_installed(language)) {
        let server = Server::start();
        let mut client = server.client();
        let output = Running::start(language, program, server.port()).output_within(LIMIT);
        assert_eq!(output, Ok(String::new()), "{language}");
        assert_eq!(client.run("GET shop:door"), "old", "{language}");
        assert_eq!(client.run("GET door"), "new", "{language}: both hold");
        assert_eq!(client.run("DBSIZE"), 2, "{language}");
    }
}
