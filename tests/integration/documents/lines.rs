//! Which lines scripts/coverage counts.

use std::fs;
use std::path::Path;
use std::process::Command;

use support::repository;

const SOURCE: &str = "\
pub fn run() {
    work();
    rest();
}

#[cfg(any(test, feature = \"simulated\"))]
pub fn len() -> usize {
    0
}

#[cfg(feature = \"simulated\")]
use std::cell::Cell;
fn last() {}

#[cfg(test)]
mod tests {
    fn check() {
        run();
    }
}
";

/// What llvm-cov would say of it: each line that can be run, and how often it was.
const FOUND: [(u32, u32); 7] = [(1, 3), (2, 3), (3, 0), (7, 0), (8, 9), (12, 0), (18, 9)];

fn said(arguments: &[&str]) -> (String, bool) {
    let awk = Command::new("awk").args(arguments).current_dir(repository()).output().expect("awk");
    (String::from_utf8(awk.stdout).expect("a text"), awk.status.success())
}

#[test]
fn tests_and_what_the_simulated_server_asks_for_are_no_lines_of_the_module() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, found, reasons) =
        (folder.join("counted.rs"), folder.join("counted.lcov"), folder.join("counted.reasons"));
    fs::write(&source, SOURCE).expect("a source");
    let lines: String = FOUND.iter().map(|(line, times)| format!("DA:{line},{times}\n")).collect();
    fs::write(&found, format!("SF:{}\n{lines}end_of_record\n", source.display())).expect("what was found");
    let root = format!("root={}/", folder.display());
    let given = format!("reasons={}", reasons.display());
    let found = found.display().to_string();
    let run =
        |more: &[&str]| said(&[&["-f", "scripts/coverage.awk", "-v", &root, "-v", &given], more, &[&found]].concat());

    fs::write(&reasons, "# A comment.\n\n# Never.\ncounted.rs len\n").expect("reasons");
    let (report, _) = run(&[]);
    assert!(report.contains("    2 of     3 lines   66.7 %\n"), "{report}");
    let missing = "counted.rs:3: run: rest();\n";
    assert!(report.ends_with(&format!("    0  Never.\n    1  Without a reason.\n{missing}")), "{report}");
    assert_eq!(run(&["-v", "list=1"]).0, missing);
    fs::write(&reasons, "# Late.\ncounted.rs len run\n").expect("reasons");
    assert!(run(&[]).0.ends_with("    1  Late.\n    0  Without a reason.\n"));
    assert!(run(&["-v", "least=66"]).1);
    assert!(!run(&["-v", "least=67"]).1);
}
