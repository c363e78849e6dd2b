//! The options of commands: what `src/command/options.rs` lists is documented, and played in a scenario.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use redis_lock::command::words_of_commands;
use support::repository;
use support::scenario::{Step, parse};

use super::layers::files_of_type;

type Options = BTreeSet<(String, String)>;

fn expected() -> Options {
    words_of_commands().map(|(command, word)| (command.to_owned(), word.to_owned())).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the synopsis of a command, and the rest of its page.
fn page(command: &str) -> (String, String) {
    let text = read(&repository().join("docs/commands").join(format!("{command}.md")));
    let lines: Vec<&str> = text.lines().collect();
    let is_synopsis = |line: &&str| line.starts_with("    ");
    let begin = lines.iter().position(is_synopsis).expect("a synopsis");
    let len = lines[begin..].iter().take_while(|line| is_synopsis(line)).count();
    (lines[begin..begin + len].join(" "), lines[begin + len..].join("\n"))
}

#[test]
fn synopsis_names_exactly_the_options() {
    let found: Options = expected()
        .iter()
        .map(|(command, _)| command)
        .flat_map(|command| {
            let is_option = |word: &&str| word.chars().all(|c| c.is_ascii_uppercase());
            let (synopsis, _) = page(command);
            let words: Vec<String> = synopsis
                .split([' ', '[', ']', '|'])
                .filter(|word| !word.is_empty())
                .filter(is_option)
                .map(str::to_owned)
                .collect();
            words.into_iter().map(|word| (command.clone(), word))
        })
        .collect();
    assert_eq!(found, expected());
}

#[test]
fn page_explains_every_option() {
    let (_, common) = page("lock.acquire");
    let is_explained = |(command, word): &(String, String)| {
        let (_, text) = page(command);
        [format!("`{word}`"), format!("`{word} ")].iter().any(|code| text.contains(code) || common.contains(code))
    };
    let missing: Vec<_> = expected().into_iter().filter(|option| !is_explained(option)).collect();
    assert!(missing.is_empty(), "no word about {missing:?}");
}

#[test]
fn scenario_sends_every_option() {
    let mut sent = Options::new();
    for path in files_of_type("scenario", &repository().join("tests/scenarios")) {
        let steps = parse(&read(&path)).expect("scenarios").into_iter().flat_map(|scenario| scenario.lines);
        let commands = steps.flat_map(|line| match line.step {
            Step::Send { commands, .. } => commands,
            _ => Vec::new(),
        });
        for words in commands {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let [command, options @ ..] = &words[..] else { continue };
            sent.extend(options.iter().map(|word| (command.to_lowercase(), word.clone())));
        }
    }
    let missing: Vec<_> = expected().into_iter().filter(|option| !sent.contains(option)).collect();
    assert!(missing.is_empty(), "no scenario sends {missing:?}");
}
