//! Checks that the checker of the simulator finds known defects: faults of the simulated server, and mutants of the
//! module. For each defect, one of the first [`outcome::MAX_HISTORIES`] histories must fail with the words of the
//! defect.
//!
//! A mutant is a patch in `simulator/mutants`. It is applied to a copy of the sources, so that nothing here changes.

mod choice;
mod fault;
mod jobs;
mod mutant;
mod outcome;
mod patch;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use redis_lock::server::Fault;

use jobs::Jobs;
use outcome::Outcome;
use patch::Patch;
use tree::Tree;

/// Hunts faults of the simulated server and mutants of the module, and shows how each was found.
#[derive(Parser)]
struct Options {
    /// Names of faults and mutants. Without names, all are hunted.
    names: Vec<String>,
    /// Hunts all faults, the mutants of files that have changed since this revision, and as many others as `--more` says.
    #[arg(long, conflicts_with = "names")]
    since: Option<String>,
    /// The number of mutants of unchanged files that are hunted, too. The commit determines which.
    #[arg(long, default_value_t = 3)]
    more: usize,
    /// Lists the faults and the mutants.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match hunt(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("hunt: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Hunts what the options choose. Returns whether everything was found.
fn hunt(options: &Options) -> Result<bool, String> {
    let root = repository();
    let all = patch::read_all(&root)?;
    if options.list {
        Fault::ALL.iter().for_each(|fault| println!("{:<36} {}", fault.to_string(), fault.what()));
        all.iter().for_each(|patch| println!("{:<36} {}", patch.name, patch.why));
        return Ok(true);
    }
    let (faults, patches) = choose(options, &root, all.clone())?;
    let tree = Tree::copy(&root)?;
    all.iter().try_for_each(|patch| tree.check(patch))?;
    // A history that panics is a result here.
    std::panic::set_hook(Box::new(|_| {}));
    let (outcomes, unbuilt) = Jobs::run(|jobs| {
        faults.into_iter().for_each(|fault| jobs.add(move || fault::hunt(fault)));
        let built = |patch: Patch| tree.build(&patch).map(|build| jobs.add(move || mutant::hunt(&patch, &build)));
        patches.into_iter().filter_map(|patch| built(patch).err()).collect::<Vec<String>>()
    });
    unbuilt.iter().for_each(|why| println!("{why}"));
    let missed: Vec<&str> = outcomes.iter().filter(|outcome| !outcome.is_found()).map(Outcome::name).collect();
    println!("{} of {} found", outcomes.len() - missed.len(), outcomes.len() + unbuilt.len());
    if !missed.is_empty() {
        println!("not found: {}", missed.join(" "));
    }
    Ok(missed.is_empty() && unbuilt.is_empty())
}

fn choose(options: &Options, root: &Path, mut patches: Vec<Patch>) -> Result<(Vec<Fault>, Vec<Patch>), String> {
    if let Some(revision) = &options.since {
        return Ok((Fault::ALL.to_vec(), choice::of_change(root, revision, options.more, patches)?));
    }
    if options.names.is_empty() {
        return Ok((Fault::ALL.to_vec(), patches));
    }
    let is_known = |name: &&String| Fault::find(name).is_none() && patches.iter().all(|patch| patch.name != **name);
    if let Some(name) = options.names.iter().find(is_known) {
        return Err(format!("there is no fault and no mutant {name}: see --list"));
    }
    patches.retain(|patch| options.names.contains(&patch.name));
    Ok((options.names.iter().filter_map(|name| Fault::find(name)).collect(), patches))
}

/// The repository with this package.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}
