//! Whose instructions they are: the module's own, or of what it calls, or the server's around both.

use std::collections::{BTreeMap, HashMap};

use super::graph::{Calls, Function, Graph};

/// Passes over the graph until shares have come down the longest chain of calls.
const PASSES: usize = 60;

/// Instructions, by those on whose account they are. They add up to all of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The server before, around and after the module: reading, dispatch, replying.
    pub server: f64,
    /// The module itself, wherever it is called from.
    pub module: f64,
    /// The server's API functions that the module calls, and all they call but the module.
    pub api: f64,
    /// What the module calls in other libraries.
    pub libraries: f64,
}

pub struct Profile {
    pub share: Share,
    /// The server's functions that the module calls, with what their calls cost in all.
    pub api: BTreeMap<Function, Calls>,
    /// The module's functions.
    pub module: BTreeMap<Function, f64>,
}

/// Of what a function costs, the parts that are on whose account.
#[derive(Clone, Copy, Default)]
struct Parts {
    api: f64,
    libraries: f64,
}

impl Profile {
    /// Of a graph in which `module` is the file name of the module's binary.
    ///
    /// A function that is called on several accounts, like the allocator, is split as the costs of its calls are.
    pub fn of(graph: &Graph, module: &str) -> Self {
        let is_module = |function: &Function| file_name(function) == module;
        let parts = parts(graph, is_module);
        let mut share = Share::default();
        for (function, own) in &graph.own {
            if is_module(function) {
                share.module += own;
            } else {
                let parts = parts.get(function).copied().unwrap_or_default();
                share.api += own * parts.api;
                share.libraries += own * parts.libraries;
                share.server += own * (1.0 - parts.api - parts.libraries);
            }
        }
        let mut api = BTreeMap::<Function, Calls>::new();
        for ((caller, called), calls) in &graph.calls {
            if is_module(caller) && !is_module(called) && !is_library(called) {
                let sum = api.entry(called.clone()).or_default();
                sum.count += calls.count;
                sum.inclusive += calls.inclusive;
            }
        }
        let own = graph.own.iter().filter(|(function, _)| is_module(function));
        Self { share, api, module: own.map(|(function, own)| (function.clone(), *own)).collect() }
    }
}

/// For each function the parts of its costs that are on the account of a call by the module.
fn parts(graph: &Graph, is_module: impl Fn(&Function) -> bool) -> HashMap<&Function, Parts> {
    let mut parts: HashMap<&Function, Parts> = HashMap::new();
    for _ in 0..PASSES {
        let mut costs: HashMap<&Function, (f64, Parts)> = HashMap::new();
        for ((caller, called), calls) in graph.calls.iter().filter(|((caller, called), _)| caller != called) {
            let of_call = match (is_module(caller), is_library(called)) {
                (true, true) => Parts { api: 0.0, libraries: 1.0 },
                (true, false) => Parts { api: 1.0, libraries: 0.0 },
                (false, _) => parts.get(caller).copied().unwrap_or_default(),
            };
            let (sum, of_called) = costs.entry(called).or_default();
            *sum += calls.inclusive;
            of_called.api += calls.inclusive * of_call.api;
            of_called.libraries += calls.inclusive * of_call.libraries;
        }
        let ratio = |(sum, parts): (f64, Parts)| Parts { api: parts.api / sum, libraries: parts.libraries / sum };
        parts = costs.into_iter().map(|(function, cost)| (function, ratio(cost))).collect();
    }
    parts
}

fn file_name(function: &Function) -> &str {
    function.object.rsplit('/').next().unwrap_or_default()
}

fn is_library(function: &Function) -> bool {
    file_name(function).contains(".so")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server calls a module, and that the server's API, which calls the module back; everybody uses `malloc`.
    const OUTPUT: &str = "\
ob=(1) /bin/server
fn=(1) main
0 100
cob=(2) /lib/module.so
cfn=(2) command
calls=1 0
0 66
cob=(3) /lib/libc.so.6
cfn=(3) malloc
calls=1 0
0 8

fn=(4) OpenKey
0 20
cob=(2)
cfn=(5) event
calls=1 0
0 6
cob=(3)
cfn=(3)
calls=1 0
0 4

ob=(2)
fn=(2)
0 30
cob=(1)
cfn=(4)
calls=1 0
0 30
cob=(3)
cfn=(3)
calls=1 0
0 6

fn=(5)
0 6

ob=(3)
fn=(3)
0 18
";

    #[test]
    fn every_instruction_is_on_one_account() {
        let graph = Graph::parse(OUTPUT);
        let profile = Profile::of(&graph, "module.so");
        assert_eq!(profile.share, Share { server: 108.0, module: 36.0, api: 24.0, libraries: 6.0 });
        let open = profile.api.iter().map(|(function, calls)| (&*function.name, *calls)).collect::<Vec<_>>();
        assert_eq!(open, [("OpenKey", Calls { count: 1.0, inclusive: 30.0 })]);
    }
}
