//! The model: which actions are possible in a state, and what they lead to.

use stateright::{Model, Property};

use super::action::{Action, Request};
use super::rules::Rules;
use super::server;
use super::state::{CLIENTS, Client, Faults, NODES, Node, Role, State, Token};

pub const ONE_HOLDER: &str = "one holder";
pub const PROMOTED_GRANTS: &str = "a promoted server grants";

pub struct Failover {
    pub rules: Rules,
    pub faults: Faults,
}

impl Model for Failover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::initial(self.faults);
        if self.rules.is_chained {
            state.nodes[2].role = Role::Replica(1);
            state.nodes[0].needs[2] = false;
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for node in 0..NODES {
            self.node_actions(state, node, actions);
        }
        for client in 0..CLIENTS {
            self.client_actions(state, client, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let rules = &self.rules;
        match action {
            Action::Tick => self.tick(&mut state),
            Action::Replicate { node, ahead } => {
                let Role::Replica(master) = state.nodes[node].role else { return None };
                server::replicate(&mut state, node, master.into(), ahead);
            }
            Action::Acknowledge { master, replica } => {
                server::acknowledge(&mut state, master, replica);
            }
            Action::Promote { node } => {
                state.left.promotions -= 1;
                server::promote(rules, &mut state, node);
            }
            Action::Follow { node, master } => server::follow(rules, &mut state, node, master),
            Action::Restart { node, forgets } => {
                state.left.restarts -= 1;
                server::restart(rules, &mut state, node, forgets);
            }
            Action::Stall { node } => {
                state.left.stalls -= 1;
                server::stall(rules, &mut state, node);
            }
            Action::Resume { node } => server::resume(rules, &mut state.nodes[node]),
            Action::Ask { client, request } => self.ask(&mut state, client, request)?,
            Action::Release { client, node } => {
                if state.nodes[node].lock.is_some_and(|lock| lock.token == Token::of(client)) {
                    state.nodes[node].lock = None;
                }
                state.clients[client] = Client { has_token: true, holds: 0 };
                if !rules.reuses_tokens {
                    state.retire_token(client);
                }
            }
            Action::ReleaseOld { node } => state.nodes[node].lock = None,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_HOLDER, |_, state: &State| state.holders() <= 1),
            Property::sometimes(PROMOTED_GRANTS, |model: &Self, state: &State| {
                let is_later = |node: &Node| model.faults.promotions == 0 || node.epoch > 0;
                let grants = |node: &Node| node.is_master() && node.lock.is_some() && is_later(node);
                let is_late = state.left.promotions == 0 && (model.faults.promotions > 0 || state.left.restarts == 0);
                is_late && state.holders() == 1 && state.nodes.iter().any(grants)
            }),
        ]
    }
}

impl Failover {
    fn node_actions(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let server = &state.nodes[node];
        let left = &state.left;
        match server.role {
            Role::Replica(master) => {
                let master = usize::from(master);
                let follows_master = state.nodes[master].is_master() && !state.nodes[master].is_stalled;
                if follows_master || self.rules.is_chained {
                    let skew = i8::try_from(self.rules.skew).unwrap_or_default();
                    actions.extend((-skew..=skew).map(|ahead| Action::Replicate { node, ahead }));
                }
                let masters = (0..NODES).filter(|other| *other != master && is_newer(state, *other, master));
                actions.extend(masters.map(|master| Action::Follow { node, master }));
                if left.promotions > 0 {
                    actions.push(Action::Promote { node });
                }
            }
            Role::Master => {
                let others = (0..NODES).filter(|other| *other != node);
                for replica in others.clone() {
                    if server::acknowledge(&mut state.clone(), node, replica) {
                        actions.push(Action::Acknowledge { master: node, replica });
                    }
                }
                if server.is_stalled {
                    return actions.push(Action::Resume { node });
                }
                actions.extend(
                    others.filter(|by| is_newer(state, *by, node)).map(|master| Action::Follow { node, master }),
                );
                if left.restarts > 0 {
                    actions.extend([true, false].map(|forgets| Action::Restart { node, forgets }));
                }
                if left.stalls > 0 {
                    actions.push(Action::Stall { node });
                }
                if server.lock.is_some_and(|lock| lock.token == Token::Old)
                    && server::may_write(&self.rules, node, state)
                {
                    actions.push(Action::ReleaseOld { node });
                }
            }
        }
    }

    fn client_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        let Client { has_token, holds } = state.clients[client];
        for node in 0..NODES {
            for (is_new, is_lost) in [(true, true), (true, false), (false, true), (false, false)] {
                let is_possible = if is_new { holds == 0 } else { has_token };
                for lease in (1..=self.rules.longest).filter(|_| is_possible) {
                    let request = Request { node, lease, is_new, is_lost };
                    if self.ask(&mut state.clone(), client, request).is_some() {
                        actions.push(Action::Ask { client, request });
                    }
                }
            }
            if holds > 0 && server::may_write(&self.rules, node, state) {
                actions.push(Action::Release { client, node });
            }
        }
    }

    /// A client sends a request; `None` if it is not granted.
    fn ask(&self, state: &mut State, client: usize, request: Request) -> Option<()> {
        let Request { node, lease, is_new, is_lost } = request;
        if is_new {
            state.retire_token(client);
        }
        let lock = server::serve(&self.rules, node, state, Token::of(client), lease)?;
        state.nodes[node].lock = Some(lock);
        let client = &mut state.clients[client];
        client.has_token = true;
        if !is_lost {
            let counted = (lease + self.rules.reply_delay).saturating_sub(self.rules.margin);
            client.holds = client.holds.max(counted);
        }
        Some(())
    }

    fn tick(&self, state: &mut State) {
        for (node, server) in state.nodes.iter_mut().enumerate() {
            server::tick(&self.rules, node, server);
        }
        for client in 0..CLIENTS {
            let holds = &mut state.clients[client].holds;
            if *holds > 0 && self.rules.stops {
                *holds -= 1;
                if *holds == 0 && !self.rules.reuses_tokens {
                    state.retire_token(client);
                }
            }
        }
    }
}

/// Whether a node is a master that was promoted later than another.
fn is_newer(state: &State, node: usize, other: usize) -> bool {
    state.nodes[node].is_master() && state.nodes[node].epoch > state.nodes[other].epoch
}
