//! The rules of the sources that the compiler does not check: which layer uses which, that the files of a layer have no circular
//! imports, where unsafe code is, and how long a file is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use support::repository;

/// Each folder of `src`, with the layers that it may use besides itself. The simulated server counts the steps of the core.
const LAYERS: [(&str, &[&str]); 5] = [
    ("core", &[]),
    ("command", &["core"]),
    ("server", &[]),
    ("host", &["core", "command", "server"]),
    (SIMULATED, &["core", "server"]),
];

/// The folder of the simulated server, which the other layers use under the name `server`.
const SIMULATED: &str = "simulated";

/// The one layer with unsafe code.
const UNSAFE: &str = "server";

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The files of a layer by the path of their module (`waiting::line`, and the empty one for the layer itself), with what the
/// compiler sees of them: no comments, and no tests.
fn modules(layer: &str) -> BTreeMap<Vec<String>, String> {
    let root = repository().join("src").join(layer);
    let module = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source");
        let inside = path.strip_prefix(&root).expect("a file of the layer").with_extension("");
        let mut names: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        names.retain(|name| name != "mod");
        (names, code(&text))
    };
    let mut all: BTreeMap<_, _> = files(&root).into_iter().map(module).collect();
    all.extend(shared_modules(&root, &all[&Vec::new()]));
    all.into_iter()
        .filter(|(names, _)| !names.last().is_some_and(|name| ["tests", "model"].contains(&&**name)))
        .collect()
}

/// Returns the files of other folders that a layer contains: `#[path = "../server/module.rs"] mod module;`.
fn shared_modules(root: &Path, text: &str) -> Vec<(Vec<String>, String)> {
    let paths = text.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next());
    let module = |path: &str| {
        let path = root.join(path);
        let text = fs::read_to_string(&path).expect("a shared source");
        (vec![path.file_stem().expect("the name of a source").to_string_lossy().into_owned()], code(&text))
    };
    paths.map(module).collect()
}

/// Returns the name of a folder of `src` in paths of Rust.
fn rust_name(layer: &str) -> &str {
    if layer == SIMULATED { "server" } else { layer }
}

fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths that a text imports, in full: `use a::{b, c::d};` are `a::b` and `a::c::d`.
fn imports(text: &str) -> Vec<Vec<String>> {
    let statements = text.split(';').filter_map(|statement| {
        let (before, path) = statement.rsplit_once("use ")?;
        before.chars().last().is_none_or(|c| c.is_whitespace() || c == ')').then_some(path)
    });
    statements.flat_map(|path| expand(path.trim(), &[])).collect()
}

fn expand(path: &str, prefix: &[String]) -> Vec<Vec<String>> {
    let Some((head, rest)) = path.split_once("::{") else {
        let names = path.split("::").map(|name| name.split(" as ").next().unwrap_or_default().trim().to_owned());
        return vec![prefix.iter().cloned().chain(names.filter(|name| name != "self")).collect()];
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let prefix: Vec<String> =
        prefix.iter().cloned().chain(head.split("::").map(|name| name.trim().to_owned())).collect();
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                parts.last_mut().expect("a part").push(c);
            }
        }
    }
    parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty())
        .flat_map(|part| expand(part, &prefix))
        .collect()
}

/// The path of an import from the crate's root; `None` for another crate.
fn absolute(layer: &str, module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut here: Vec<String> = [layer.to_owned()].into_iter().chain(module.iter().cloned()).collect();
    let mut rest = path;
    match rest.first().map(String::as_str)? {
        "crate" => return Some(rest.get(1..)?.to_vec()),
        "super" | "self" => {}
        _ => return None,
    }
    while let Some((first, behind)) = rest.split_first().filter(|(first, _)| ["super", "self"].contains(&&***first)) {
        if first == "super" {
            here.pop();
        }
        rest = behind;
    }
    here.extend(rest.iter().cloned());
    Some(here)
}

/// Which file a path inside a layer leads to, through what the layer's files hand on by `pub use`.
fn resolve(layer: &str, modules: &BTreeMap<Vec<String>, String>, path: &[String]) -> Vec<String> {
    let file = (0..=path.len()).rev().map(|len| path[..len].to_vec()).find(|names| modules.contains_key(names));
    let file = file.unwrap_or_default();
    let Some(name) = path.get(file.len()) else { return file };
    let handed_on = modules[&file].split(';').filter(|statement| statement.contains("pub use "));
    let found = handed_on.flat_map(|statement| {
        let path = statement.rsplit_once("pub use ").map(|(_, path)| path).unwrap_or_default();
        expand(path.trim(), &[])
    });
    let target = found.into_iter().find(|path| path.last() == Some(name));
    let inside = target.map(|path| path.into_iter().filter(|name| !["crate", "self", layer].contains(&&**name)));
    inside.map_or_else(|| file.clone(), |inside| file.iter().cloned().chain(inside.take(1)).collect())
}

/// The files of a layer, each with those of the same layer that it uses, parents and children aside.
fn uses_within(layer: &str) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let modules = modules(layer);
    let layer = rust_name(layer);
    let is_family = |one: &[String], other: &[String]| one.starts_with(other) || other.starts_with(one);
    let uses = modules.iter().map(|(module, text)| {
        let paths = imports(text).into_iter().filter_map(|path| absolute(layer, module, &path));
        let inside = paths.filter(|path| path.first().is_some_and(|first| first == layer));
        let targets = inside.map(|path| resolve(layer, &modules, &path[1..]));
        (module.clone(), targets.filter(|target| !is_family(module, target)).collect())
    });
    uses.collect()
}

#[test]
fn every_layer_uses_only_those_below_it() {
    for (layer, allowed) in LAYERS {
        for (module, text) in modules(layer) {
            // Every mention counts, not only imports.
            let mentioned = text
                .split("crate::")
                .skip(1)
                .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>());
            let layers: BTreeSet<String> =
                mentioned.filter(|name| LAYERS.iter().any(|(layer, _)| layer == name)).collect();
            let wrong: Vec<_> = layers.iter().filter(|name| *name != layer && !allowed.contains(&&***name)).collect();
            assert!(wrong.is_empty(), "src/{layer}, {module:?} uses {wrong:?}");
        }
    }
}

#[test]
fn files_of_a_layer_have_no_circular_imports() {
    for (layer, _) in LAYERS {
        let mut uses = uses_within(layer);
        assert!(uses.values().map(BTreeSet::len).sum::<usize>() > uses.len() / 2, "{layer}: {uses:?}");
        // Removes the files that use no remaining file, again and again. A circle remains.
        loop {
            let free: Vec<_> = uses.iter().filter(|(_, used)| used.is_empty()).map(|(file, _)| file.clone()).collect();
            if free.is_empty() {
                break;
            }
            free.iter().for_each(|file| _ = uses.remove(file));
            uses.values_mut().for_each(|used| used.retain(|file| !free.contains(file)));
        }
        assert!(uses.is_empty(), "src/{layer} has circular imports among {uses:#?}");
    }
}

#[test]
fn only_the_server_layer_has_unsafe_code() {
    let is_unsafe = |text: &str| text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == "unsafe");
    for (layer, _) in LAYERS {
        let texts = modules(layer);
        let found: Vec<_> = texts.iter().filter(|(_, text)| is_unsafe(text)).map(|(module, _)| module).collect();
        assert_eq!(!found.is_empty(), layer == UNSAFE, "src/{layer}: {found:?}");
        let forbids = texts[&Vec::new()].contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, layer != UNSAFE, "src/{layer}/mod.rs");
    }
}

/// The names of API functions behind each occurrence of `mark`.
fn functions(text: &str, mark: &str) -> BTreeSet<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    text.split(mark).skip(1).map(name).filter(|name: &String| name.starts_with("RedisModule_")).collect()
}

#[test]
fn loading_checks_for_every_function_that_is_called_without_a_look() {
    let sources = modules(UNSAFE);
    let api = &sources[&vec!["api".to_owned()]];
    let (_, list) = api.split_once("const REQUIRED: &str = \"").expect("the required functions");
    let list = list.split('"').next().unwrap_or_default();
    let checked: BTreeSet<String> = list.split_whitespace().map(|name| format!("RedisModule_{name}")).collect();
    let called: BTreeSet<String> = sources.values().flat_map(|text| functions(text, "api!(")).collect();
    let looked_for: BTreeSet<String> = sources.values().flat_map(|text| functions(text, "has_api!(")).collect();
    assert!(called.len() > 30, "{called:?}");
    let required: BTreeSet<String> = called.difference(&looked_for).cloned().collect();
    assert_eq!(checked, required);
}

/// The folders with Rust sources.
const FOLDERS: [&str; 7] = ["src", "simulator/src", "chaos/src", "tests", "bench/src", "fuzz/src", "fuzz/targets"];

#[test]
fn sources_have_at_most_400_lines() {
    for folder in FOLDERS {
        let all = files(&repository().join(folder));
        let sources: Vec<_> = all.iter().filter(|path| path.extension().is_some_and(|end| end == "rs")).collect();
        assert!(!sources.is_empty(), "{folder} has no sources");
        for path in sources {
            let lines = fs::read_to_string(path).expect("a source").lines().count();
            assert!(lines <= 400, "{} has {lines} lines", path.display());
        }
    }
}
