//! What a server does: the rules of the module for a master, and what replication and roles do to a node.

use super::rules::Rules;
use super::state::{Link, Lock, NODES, Node, Role, SILENT, State, Token};

/// The lock of a node after a request for it was granted; `None` if it is not granted.
pub fn serve(rules: &Rules, node: usize, state: &State, token: Token, lease: u8) -> Option<Lock> {
    let server = &state.nodes[node];
    if !may_write(rules, node, state) || lease > longest(rules, node) {
        return None;
    }
    match server.lock {
        None if server.period == 0 && server.suspended == 0 => Some(Lock { token, lease }),
        // The reply to a repeated request that does not lengthen the lease.
        Some(lock) if lock.token == token && lock.lease >= lease => Some(lock),
        Some(lock) if lock.token == token && may_lengthen(rules, node, server) => Some(Lock { token, lease }),
        _ => None,
    }
}

/// Whether the server takes writes: it is a master, and hears of the replicas that it needs.
pub fn may_write(rules: &Rules, node: usize, state: &State) -> bool {
    let server = &state.nodes[node];
    let needed = || (0..NODES).filter(|other| server.needs[*other]);
    let counting = needed().filter(|other| server.links[*other].silence <= rules.notice).count();
    let has_replicas =
        if rules.needs_all { counting == needed().count() } else { counting > 0 || needed().count() == 0 };
    server.is_master() && !server.is_stalled && (server.is_stale || has_replicas)
}

/// Whether the lease of a holder may become longer: not in the first part of the period.
fn may_lengthen(rules: &Rules, node: usize, server: &Node) -> bool {
    server.suspended == 0 && (rules.lengthens_early || server.period <= longest(rules, node))
}

/// The longest lease that a node grants.
fn longest(rules: &Rules, node: usize) -> u8 {
    if rules.has_lowered && node != 0 { rules.max_lease / 2 } else { rules.longest }
}

fn period(rules: &Rules, node: usize) -> u8 {
    let lowered = if rules.has_lowered && node != 0 { rules.max_lease - rules.max_lease / 2 } else { 0 };
    rules.period - lowered
}

/// Time passes for a server.
pub fn tick(rules: &Rules, node: usize, server: &mut Node) {
    let rate = if rules.runs_fast && node != 0 { 2 } else { 1 };
    server.period = server.period.saturating_sub(rate);
    server.suspended = server.suspended.saturating_sub(1);
    server.is_stale &= server.is_stalled;
    server.lock = server.lock.and_then(|lock| earlier(lock, 1));
    for link in server.links.iter_mut().filter(|_| server.role == Role::Master) {
        link.silence = if link.silence >= rules.notice.max(rules.ack_delay) { SILENT } else { link.silence + 1 };
        link.late = link.late.and_then(|rest| rest.checked_sub(1));
    }
}

fn earlier(lock: Lock, by: u8) -> Option<Lock> {
    lock.lease.checked_sub(by).filter(|lease| *lease > 0).map(|lease| Lock { lease, ..lock })
}

/// A replica receives the key of its master. `ahead` is the difference of the clocks.
pub fn replicate(state: &mut State, node: usize, master: usize, ahead: i8) {
    let lock = state.nodes[master].lock;
    state.nodes[node].lock = match ahead {
        ..0 => lock.map(|lock| Lock { lease: lock.lease + ahead.unsigned_abs(), ..lock }),
        _ => lock.and_then(|lock| earlier(lock, ahead.unsigned_abs())),
    };
}

/// A replica becomes a master. If another promotion can follow, it needs all nodes that are replicas then. Otherwise an
/// operator lets it do without them.
pub fn promote(rules: &Rules, state: &mut State, node: usize) {
    leave(rules, state, node);
    let is_last = state.left.promotions == 0;
    let needs = std::array::from_fn(|other| !is_last && other != node && !state.nodes[other].is_master());
    let epoch = 1 + state.nodes.iter().map(|node| node.epoch).max().unwrap_or_default();
    let server = &mut state.nodes[node];
    *server = Node { role: Role::Master, epoch, period: period(rules, node), needs, ..Node::replica(0, server.lock) };
}

/// A node becomes a replica of another master, and receives its key.
pub fn follow(rules: &Rules, state: &mut State, node: usize, master: usize) {
    leave(rules, state, node);
    state.nodes[node] = Node::replica(u8::try_from(master).unwrap_or_default(), state.nodes[master].lock);
    state.nodes[master].needs[node] |= state.left.promotions > 0;
}

/// What a replica has sent to its master can still arrive there when it is no replica any more.
fn leave(rules: &Rules, state: &mut State, node: usize) {
    if let Role::Replica(master) = state.nodes[node].role {
        state.nodes[usize::from(master)].links[node].late = Some(rules.ack_delay);
    }
}

pub fn restart(rules: &Rules, state: &mut State, node: usize, forgets: bool) {
    let server = &mut state.nodes[node];
    let Node { epoch, needs, .. } = *server;
    let lock = server.lock.filter(|_| !forgets);
    *server = Node { role: Role::Master, epoch, period: period(rules, node), needs, ..Node::replica(0, lock) };
}

/// The server stalls. It keeps its last count of replicas until it has continued and checked them.
pub fn stall(rules: &Rules, state: &mut State, node: usize) {
    let is_stale = may_write(rules, node, state);
    let server = &mut state.nodes[node];
    (server.is_stalled, server.is_stale) = (true, is_stale);
}

/// The server continues after a stall and reads what has arrived. Its first commands come before it checks its replicas.
pub fn resume(rules: &Rules, server: &mut Node) {
    server.is_stalled = false;
    server.suspended = if rules.waits_after_stall { rules.notice + 1 } else { 0 };
    for link in server.links.iter_mut().filter(|link| link.is_unread) {
        (link.silence, link.is_unread) = (0, false);
    }
}

/// An acknowledgement of a replica arrives, of a present one or of one that was a replica until recently. Returns
/// whether that changes anything.
pub fn acknowledge(state: &mut State, master: usize, replica: usize) -> bool {
    let is_replica = state.nodes[replica].role == Role::Replica(u8::try_from(master).unwrap_or_default());
    let is_stalled = state.nodes[master].is_stalled;
    let link = &mut state.nodes[master].links[replica];
    if !is_replica && link.late.is_none() {
        return false;
    }
    let before = *link;
    let silence = if is_stalled { link.silence } else { 0 };
    *link = Link { silence, is_unread: is_stalled, ..before };
    *link != before
}
