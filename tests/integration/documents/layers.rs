//! The rules of the sources that the compiler does not check.

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
    ("simulated", &["core", "server"]),
];

/// The folders with Rust sources.
const FOLDERS: [&str; 8] =
    ["src", "simulator/src", "chaos/src", "judge/src", "tests", "bench/src", "fuzz/src", "fuzz/targets"];

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    files_of_type("rs", folder)
}

/// Returns the files with an extension in a folder and the folders below it.
pub fn files_of_type(extension: &str, folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of files").map(|entry| entry.expect("an entry").path());
    let all = entries.flat_map(|path| if path.is_dir() { files_of_type(extension, &path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

/// Returns the files of a layer without comments and tests, by the paths of their modules: `core::waiting::line`.
fn modules(layer: &str) -> BTreeMap<String, String> {
    modules_in(&repository().join("src"), layer)
}

/// Returns the files of a folder in the sources of a package, in the same form.
fn modules_in(source: &Path, folder: &str) -> BTreeMap<String, String> {
    let module = |path: PathBuf| {
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = code.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
        let inside = path.strip_prefix(source).expect("a source").with_extension("").display().to_string();
        (inside.trim_end_matches("/mod").replace('/', "::"), code)
    };
    let all: BTreeMap<String, String> = sources(&source.join(folder)).into_iter().map(module).collect();
    all.into_iter().filter(|(name, _)| !name.ends_with("::tests") && !name.ends_with("::model")).collect()
}

#[test]
fn every_layer_uses_only_those_below_it() {
    for (layer, allowed) in LAYERS {
        for (module, code) in modules(layer) {
            // Every path counts, not only imports.
            let names = code.split("crate::").skip(1).map(identifier);
            let layers = names.filter(|name| LAYERS.iter().any(|(layer, _)| layer == name));
            let wrong: BTreeSet<String> = layers.filter(|name| *name != layer && !allowed.contains(&&**name)).collect();
            assert!(wrong.is_empty(), "{module} uses {wrong:?}");
        }
    }
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// What a module imports: whether it is for others, too (`pub use`), and its path from the root of the crate.
type Import = (bool, String);

fn imports(module: &str, code: &str) -> Vec<Import> {
    let statements = code.split(';').filter_map(|statement| {
        let (before, paths) = statement.rsplit_once("use ")?;
        before.chars().last().is_none_or(|c| c.is_whitespace()).then_some((before.trim_end().ends_with("pub"), paths))
    });
    let absolute = |path: String| {
        let (mut here, mut rest) = (module, path.as_str());
        if let Some(path) = rest.strip_prefix("crate::") {
            return path.to_owned();
        }
        while let Some(path) = rest.strip_prefix("super::") {
            here = here.rsplit_once("::").map_or("", |(parent, _)| parent);
            rest = path;
        }
        format!("{here}::{}", rest.trim_start_matches("self::"))
    };
    statements
        .flat_map(|(is_public, paths)| expand(paths).into_iter().map(move |path| (is_public, absolute(path))))
        .collect()
}

/// Returns the paths of an import: `a::{b, c::d}` are `a::b` and `a::c::d`.
fn expand(paths: &str) -> Vec<String> {
    let Some((head, rest)) = paths.split_once('{') else {
        let path = paths.split(" as ").next().unwrap_or_default().trim();
        return vec![path.trim_end_matches("::self").to_owned()];
    };
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let mut depth = 0;
    let parts = inside.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{}{part}", head.trim()))).collect()
}

/// Returns the module to which a path leads, if it is one of these.
fn module_of<'m>(modules: &'m BTreeMap<String, Vec<Import>>, path: &str) -> Option<&'m str> {
    let leads_to =
        |name: &&String| path.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    modules.keys().filter(leads_to).max_by_key(|name| name.len()).map(String::as_str)
}

/// Returns the same, through the `pub use` of a module.
fn origin<'m>(modules: &'m BTreeMap<String, Vec<Import>>, path: &str) -> Option<&'m str> {
    let module = module_of(modules, path)?;
    let name = identifier(path[module.len()..].trim_start_matches("::"));
    let end = format!("::{name}");
    let exported = modules[module].iter().find(|(is_public, path)| *is_public && path.ends_with(&end));
    exported.and_then(|(_, path)| module_of(modules, path)).or(Some(module))
}

/// Returns which modules each module uses, apart from those above and below it in the tree of modules.
fn uses_of(code: BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeMap<String, Vec<Import>> =
        code.into_iter().map(|(module, code)| (module.clone(), imports(&module, &code))).collect();
    let is_inside = |one: &str, other: &str| one.strip_prefix(other).is_some_and(|rest| rest.starts_with("::"));
    let is_family = |one: &str, other: &str| one == other || is_inside(one, other) || is_inside(other, one);
    let uses = |(module, imports): (&String, &Vec<Import>)| {
        let used = imports.iter().filter_map(|(_, path)| origin(&modules, path));
        (module.clone(), used.filter(|used| !is_family(module, used)).map(str::to_owned).collect())
    };
    modules.iter().map(uses).collect()
}

/// Removes those that use none of the others, as long as there are some. A circle remains.
fn circles(mut uses: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    while let Some(free) = uses.iter().find(|(_, used)| used.is_empty()).map(|(module, _)| module.clone()) {
        uses.remove(&free);
        uses.values_mut().for_each(|used| _ = used.remove(&free));
    }
    uses
}

#[test]
fn files_of_a_layer_have_no_circular_imports() {
    for (layer, _) in LAYERS {
        let uses = uses_of(modules(layer));
        assert!(uses.values().map(BTreeSet::len).sum::<usize>() > uses.len() / 2, "{layer}: {uses:?}");
        let circles = circles(uses);
        assert!(circles.is_empty(), "src/{layer} has circular imports among {circles:#?}");
    }
}

/// The folders of the other packages that have none.
const PACKAGES: [&str; 5] = ["simulator/src", "judge/src", "bench/src", "fuzz/src", "tests/support"];

#[test]
fn files_of_a_package_have_no_circular_imports() {
    for package in PACKAGES {
        let uses = uses_of(modules_in(&repository().join(package), ""));
        assert!(uses.values().any(|used| !used.is_empty()), "{package}: {uses:?}");
        let circles = circles(uses);
        assert!(circles.is_empty(), "{package} has circular imports among {circles:#?}");
    }
}

/// The folders and files of host that use those before them in the list, and no others.
const ROOMS: [&str; 9] =
    ["settings", "state", "alarm", "conditions", "keys", "replies", "granting", "commands", "work"];

#[test]
fn folders_of_host_use_only_those_below_them() {
    let room_of = |module: &str| module.split("::").nth(1).unwrap_or_default().to_owned();
    let rank = |room: &str| ROOMS.iter().position(|other| *other == room);
    let mut arrows = 0;
    for (module, used) in uses_of(modules("host")) {
        let Some(own) = rank(&room_of(&module)) else { continue };
        for other in used.iter().filter_map(|used| rank(&room_of(used))) {
            arrows += usize::from(other < own);
            assert!(other <= own, "{module} uses {}", ROOMS[other]);
        }
    }
    assert!(arrows > 20, "{arrows} imports");
}

#[test]
fn loading_checks_every_required_function() {
    let sources = modules("server");
    let (_, list) = sources["server::api"].split_once("const REQUIRED: &str = \"").expect("the required functions");
    let list = list.split('"').next().unwrap_or_default().split_whitespace();
    let checked: BTreeSet<String> = list.map(|name| format!("RedisModule_{name}")).collect();
    let named = |mark| {
        let names = sources.values().flat_map(move |code| code.split(mark).skip(1).map(identifier));
        names.filter(|name| name.starts_with("RedisModule_")).collect::<BTreeSet<String>>()
    };
    let (called, optional) = (named("api!("), named("has_api!("));
    assert!(called.len() > 30, "{called:?}");
    assert_eq!(checked, called.difference(&optional).cloned().collect());
}

#[test]
fn sources_have_at_most_400_lines() {
    for folder in FOLDERS {
        for path in sources(&repository().join(folder)) {
            let lines = read(&path).lines().count();
            assert!(lines <= 400, "{} has {lines} lines", path.display());
        }
    }
}

/// Returns the lines of a section of a Cargo.toml, without comments.
fn section(manifest: &str, name: &str) -> Vec<String> {
    let heading = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('['));
    lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn every_package_has_the_lints_of_the_workspace() {
    let (workspace, fuzz) = (read("Cargo.toml"), read("fuzz/Cargo.toml"));
    let members = section(&workspace, "workspace");
    let members: Vec<&str> = members.iter().filter_map(|line| line.strip_prefix('"')?.split('"').next()).collect();
    assert!(members.len() > 3, "{members:?}");
    for folder in ["."].into_iter().chain(members) {
        assert_eq!(section(&read(format!("{folder}/Cargo.toml")), "lints"), ["workspace = true"], "{folder}");
    }
    for tool in ["rust", "clippy"] {
        assert_eq!(section(&fuzz, &format!("lints.{tool}")), section(&workspace, &format!("workspace.lints.{tool}")));
    }
}
