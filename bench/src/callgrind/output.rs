//! Callgrind's output: the total, and the parts of the module and of the functions that it calls. Valgrind's manual describes it
//! in "Callgrind Format Specification". Here it has no lines of sources (`--dump-line=no`).

use std::collections::{BTreeMap, HashMap};

/// Instructions of a run, or per cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub total: f64,
    /// The module itself.
    pub module: f64,
    /// The functions of the server that the module calls, with all that they call.
    pub api: BTreeMap<String, f64>,
    /// The libraries that the module calls.
    pub libraries: f64,
}

/// All instructions of a run.
pub fn total(output: &str) -> f64 {
    let number = output.lines().find_map(|line| line.strip_prefix("summary:").or(line.strip_prefix("totals:")));
    number.and_then(|number| number.trim().parse().ok()).expect("a total in callgrind's output")
}

impl Profile {
    /// `module` is the file name of the module.
    pub fn parse(output: &str, module: &str) -> Self {
        let mut reader = Reader { module, ..Reader::default() };
        output.lines().for_each(|line| reader.line(line));
        Self { total: total(output), ..reader.profile }
    }

    /// The difference of a longer run and this one, for each of the additional cycles.
    pub fn per_cycle(&self, longer: &Self, cycles: f64) -> Self {
        let difference = |short: f64, long: f64| (long - short) / cycles;
        let api = longer.api.iter().map(|(name, cost)| {
            let before = self.api.get(name).copied().unwrap_or_default();
            (name.clone(), difference(before, *cost))
        });
        Self {
            total: difference(self.total, longer.total),
            module: difference(self.module, longer.module),
            api: api.collect(),
            libraries: difference(self.libraries, longer.libraries),
        }
    }

    pub fn all_api(&self) -> f64 {
        self.api.values().sum()
    }

    /// The server itself, around the commands.
    pub fn server(&self) -> f64 {
        self.total - self.module - self.all_api() - self.libraries
    }
}

#[derive(Default)]
struct Reader<'a> {
    module: &'a str,
    profile: Profile,
    /// Names that are written out once, by number.
    objects: HashMap<&'a str, &'a str>,
    functions: HashMap<&'a str, &'a str>,
    object: &'a str,
    /// The binary of the function that is called next, if it is another one, and its name.
    called_object: Option<&'a str>,
    called: &'a str,
    /// The next line has the cost of calls.
    is_call: bool,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: &'a str) {
        match line.split_once('=') {
            Some(("ob", name)) => self.object = resolve(&mut self.objects, name),
            Some(("fn", name)) => _ = resolve(&mut self.functions, name),
            Some(("cob", name)) => self.called_object = Some(resolve(&mut self.objects, name)),
            Some(("cfn", name)) => self.called = resolve(&mut self.functions, name),
            Some(("calls", _)) => self.is_call = true,
            Some(_) => {}
            None if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) => self.cost(line),
            None => {}
        }
    }

    /// `position instructions`
    fn cost(&mut self, line: &str) {
        let cost: f64 =
            line.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number of instructions");
        let called_object = self.called_object.take().unwrap_or(self.object);
        let is_call = std::mem::take(&mut self.is_call);
        if !self.object.ends_with(self.module) {
            return;
        }
        if !is_call {
            self.profile.module += cost;
        } else if called_object.ends_with(self.module) {
            // It is counted there.
        } else if called_object.contains(".so") {
            self.profile.libraries += cost;
        } else {
            *self.profile.api.entry(self.called.to_owned()).or_default() += cost;
        }
    }
}

/// The name in `(7) name` or `(7)`.
fn resolve<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    let (number, name) = text.split_once(')').expect("a compressed name");
    match name.trim_start() {
        "" => names.get(number).expect("a name that was written out before"),
        name => names.entry(number).or_insert(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server calls a module, which calls the server's API and a library.
    const OUTPUT: &str = "\
summary: 180
ob=(1) /bin/server
fn=(1) main
0 90
cob=(2) /lib/module.so
cfn=(2) command
calls=1 0
0 66

fn=(4) OpenKey
0 20
cob=(3) /lib/libc.so.6
cfn=(3) malloc
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
";

    #[test]
    fn every_instruction_has_one_part() {
        let profile = Profile::parse(OUTPUT, "module.so");
        let api = BTreeMap::from([("OpenKey".to_owned(), 30.0)]);
        assert_eq!(profile, Profile { total: 180.0, module: 30.0, api, libraries: 6.0 });
        assert_eq!(profile.server(), 114.0);
        let none = profile.per_cycle(&profile, 5.0);
        assert_eq!((none.total, none.all_api()), (0.0, 0.0));
    }
}
