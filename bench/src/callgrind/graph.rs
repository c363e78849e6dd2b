//! Callgrind's output: the total, and the graph of calls. The format is described in valgrind's manual, "Callgrind Format
//! Specification"; here the positions within functions are left out (`--dump-line=no`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A function, by its binary and name. Without symbols the name is where it begins in the binary.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    pub object: Arc<str>,
    pub name: Arc<str>,
}

/// The calls of one function by another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calls {
    pub count: f64,
    /// Instructions in the called function and all it calls.
    pub inclusive: f64,
}

#[derive(Debug, Default)]
pub struct Graph {
    /// Instructions in each function itself.
    pub own: BTreeMap<Function, f64>,
    /// By caller and called.
    pub calls: BTreeMap<(Function, Function), Calls>,
}

/// All instructions of a run.
pub fn total(output: &str) -> f64 {
    let number = output.lines().find_map(|line| line.strip_prefix("summary:").or(line.strip_prefix("totals:")));
    number.and_then(|number| number.trim().parse().ok()).expect("a total in callgrind's output")
}

impl Graph {
    pub fn parse(output: &str) -> Self {
        let mut reader = Reader::default();
        output.lines().for_each(|line| reader.line(line));
        reader.graph
    }

    /// What this graph has beyond another of the same program. What comes out negative is chance, and nothing.
    pub fn less(mut self, other: &Self) -> Self {
        for (function, own) in &mut self.own {
            *own -= other.own.get(function).unwrap_or(&0.0);
        }
        for (pair, calls) in &mut self.calls {
            let before = other.calls.get(pair).copied().unwrap_or_default();
            calls.count -= before.count;
            calls.inclusive -= before.inclusive;
        }
        self.own.retain(|_, own| *own > 0.0);
        self.calls.retain(|_, calls| calls.inclusive > 0.0);
        self
    }

    pub fn per(mut self, cycles: u64) -> Self {
        let cycles = cycles as f64;
        self.own.values_mut().for_each(|own| *own /= cycles);
        for calls in self.calls.values_mut() {
            calls.count /= cycles;
            calls.inclusive /= cycles;
        }
        self
    }
}

/// Names that are written out once and then referred to by number.
#[derive(Default)]
struct Names(HashMap<String, Arc<str>>);

impl Names {
    /// Of `(7) name` or `(7)`.
    fn resolve(&mut self, text: &str) -> Arc<str> {
        let (number, name) = text.split_once(')').expect("a compressed name");
        match name.trim_start() {
            "" => Arc::clone(self.0.get(number).expect("a name that was written out before")),
            name => Arc::clone(self.0.entry(number.to_owned()).or_insert_with(|| name.into())),
        }
    }
}

/// Where in the file the reader is.
#[derive(Default)]
struct Reader {
    graph: Graph,
    objects: Names,
    functions: Names,
    /// The binary and the function that the lines are about.
    object: Option<Arc<str>>,
    caller: Option<Function>,
    /// The binary of the function that is called next, if it is another.
    called_object: Option<Arc<str>>,
    called: Option<Function>,
    /// How often it was called: the next line has the cost of that.
    count: Option<f64>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        match line.split_once('=') {
            Some(("ob", name)) => self.object = Some(self.objects.resolve(name)),
            Some(("fn", name)) => self.caller = Some(self.function(name, None)),
            Some(("cob", name)) => self.called_object = Some(self.objects.resolve(name)),
            Some(("cfn", name)) => {
                let object = self.called_object.take();
                self.called = Some(self.function(name, object));
            }
            Some(("calls", rest)) => self.count = Some(number(rest.split(' ').next())),
            Some(_) => {}
            None if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) => self.cost(line),
            None => {}
        }
    }

    fn function(&mut self, name: &str, object: Option<Arc<str>>) -> Function {
        let object = object.or_else(|| self.object.clone()).unwrap_or_else(|| "".into());
        Function { object, name: self.functions.resolve(name) }
    }

    /// `position instructions`
    fn cost(&mut self, line: &str) {
        let instructions = number(line.split(' ').nth(1));
        let caller = self.caller.clone().expect("a function before its costs");
        match self.count.take() {
            None => *self.graph.own.entry(caller).or_default() += instructions,
            Some(count) => {
                let called = self.called.clone().expect("a function that is called");
                let calls = self.graph.calls.entry((caller, called)).or_default();
                calls.count += count;
                calls.inclusive += instructions;
            }
        }
    }
}

fn number(text: Option<&str>) -> f64 {
    text.and_then(|text| text.parse().ok()).expect("a number in callgrind's output")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `main` of a server calls `hook` of a module twice, which calls `malloc` of the library once.
    const OUTPUT: &str = "\
version: 1
positions: line
events: Ir
summary: 175

ob=(1) /bin/server
fl=(1) ???
fn=(1) main
0 100
cob=(2) /lib/module.so
cfn=(2) hook
calls=2 0
0 75

ob=(2)
fl=(1)
fn=(2)
0 50
cob=(3) /lib/libc.so.6
cfi=(1)
cfn=(3) malloc
calls=1 0
0 25

ob=(3)
fn=(3)
0 25
";

    fn function(object: &str, name: &str) -> Function {
        Function { object: object.into(), name: name.into() }
    }

    #[test]
    fn a_graph_has_own_costs_and_calls() {
        let graph = Graph::parse(OUTPUT);
        let [main, hook] = [function("/bin/server", "main"), function("/lib/module.so", "hook")];
        let malloc = function("/lib/libc.so.6", "malloc");
        assert_eq!(graph.own, BTreeMap::from([(main.clone(), 100.0), (hook.clone(), 50.0), (malloc.clone(), 25.0)]));
        let expected = [
            ((main, hook.clone()), Calls { count: 2.0, inclusive: 75.0 }),
            ((hook, malloc), Calls { count: 1.0, inclusive: 25.0 }),
        ];
        assert_eq!(graph.calls, BTreeMap::from(expected));
        assert_eq!(total(OUTPUT), graph.own.values().sum::<f64>());
    }

    #[test]
    fn nothing_is_left_of_the_same() {
        let rest = Graph::parse(OUTPUT).less(&Graph::parse(OUTPUT));
        assert!(rest.own.is_empty() && rest.calls.is_empty());
    }
}
