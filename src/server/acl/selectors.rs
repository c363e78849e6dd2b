//! The selectors of a user, each of which has rights of its own to commands, keys and channels.
//!
//! A user has the right to a command if one selector allows the command, its keys and its channels. The API says whether any
//! selector allows the command with its keys, and whether any selector allows a channel. So the selectors are checked one by one:
//! the rules of each are given to a user of the module's own that has no other rules. Most users have the root selector only, and
//! need no second check.

use std::ffi::CString;

use super::user::User;
use crate::server::api::OK;
use crate::server::state::state;
use crate::server::string::{Arguments, OwnedString, StringRef};

/// Returns whether one selector of a user allows both a command in this database and a channel. The caller has checked that each
/// of them is allowed by some selector.
pub(super) fn one_allows(user: &User, db: i32, arguments: Arguments<'_>, channel: StringRef<'_>) -> bool {
    // Redis has the function since 7.0.6.
    if !has_api!(RedisModule_GetModuleUserACLString) {
        return true;
    }
    // SAFETY: the user is valid; the module owns the string.
    let rules = unsafe { OwnedString::from_raw(api!(RedisModule_GetModuleUserACLString(user.0))) };
    let Some(rules) = rules else { return false }; // `ACL DELUSER` has deleted the user.
    let rules = rules.as_ref().bytes();
    if !has_selectors(rules) {
        return true;
    }
    let mut scratch = state().scratch_user.borrow_mut(); // No call below can call back.
    if scratch.is_none() {
        // SAFETY: the server copies the name; the module owns the handle.
        *scratch = unsafe { User::from_raw(api!(RedisModule_CreateModuleUser(c"scratch".as_ptr()))) };
    }
    let Some(scratch) = scratch.as_ref() else { return false }; // A missing user has no rights.
    selectors(rules).iter().any(|selector| {
        set_rules(scratch, db, selector) && scratch.may_publish_on(channel) && scratch.may_run(arguments)
    })
}

/// Replaces the rules of a user. Returns whether the server has accepted all rules, and they allow this database.
fn set_rules(user: &User, db: i32, rules: &[&[u8]]) -> bool {
    [b"reset".as_slice()].iter().chain(rules).all(|&rule| {
        // A pattern with a NUL cannot be passed to the server.
        let Some(Ok(rule)) = rule_in(db, rule).map(CString::new) else { return false };
        // SAFETY: user and rule are valid during the call.
        unsafe { api!(RedisModule_SetModuleUserACL(user.0, rule.as_ptr())) == OK }
    })
}

/// Returns the rule that replaces a rule for the check in a database, `None` if the rule does not allow the database. Valkey
/// 9.1 has such rules. When a module asks about a command, it refuses the command because of them, whatever the client's
/// database is.
fn rule_in(db: i32, rule: &[u8]) -> Option<&[u8]> {
    if rule == b"resetdbs" {
        return None;
    }
    let Some(allowed) = rule.strip_prefix(b"db=") else { return Some(rule) };
    let allows_it = allowed.split(|byte| *byte == b',').any(|number| *number == *db.to_string().as_bytes());
    allows_it.then_some(b"alldbs")
}

/// Returns whether there is a selector other than the root one. No rule but the first of a selector begins with a
/// parenthesis, and no rule contains a space.
fn has_selectors(rules: &[u8]) -> bool {
    rules.windows(2).any(|pair| pair == b" (")
}

/// Returns the rules of each selector, of which the root one is the first.
fn selectors(rules: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut selectors = vec![Vec::new()];
    for word in rules.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
        let first = word.strip_prefix(b"(");
        if first.is_some() {
            selectors.push(Vec::new());
        }
        selectors.last_mut().into_iter().for_each(|selector| selector.push(first.unwrap_or(word)));
    }
    let last_rules = selectors.iter_mut().skip(1).filter_map(|selector| selector.last_mut());
    last_rules.for_each(|rule| *rule = rule.strip_suffix(b")").unwrap_or(rule));
    selectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn are_selectors(rules: &str, expected: &[&[&str]]) {
        let selectors = selectors(rules.as_bytes());
        let text = |rule: &&[u8]| String::from_utf8(rule.to_vec()).expect("text");
        let found: Vec<Vec<_>> = selectors.iter().map(|selector| selector.iter().map(text).collect()).collect();
        assert_eq!(found, expected, "{rules}");
        assert_eq!(has_selectors(rules.as_bytes()), expected.len() > 1, "{rules}");
    }

    #[test]
    fn rules_are_split_into_selectors() {
        are_selectors("on nopass ~* &* +@all", &[&["on", "nopass", "~*", "&*", "+@all"]]);
        are_selectors("on ~(a) &b( +@all", &[&["on", "~(a)", "&b(", "+@all"]]);
        let root = ["off", "resetchannels", "-@all"].as_slice();
        are_selectors("off resetchannels -@all (~a) &b) -@all +get)", &[root, &["~a)", "&b)", "-@all", "+get"]]);
        are_selectors("off resetchannels -@all (+@all) (%R~x)", &[root, &["+@all"], &["%R~x"]]);
    }

    #[test]
    fn database_rule_allows_listed_databases() {
        assert_eq!(rule_in(3, b"+get"), Some(b"+get".as_slice()));
        assert_eq!([3, 12].map(|db| rule_in(db, b"db=0,3,12")), [Some(b"alldbs".as_slice()); 2]);
        assert_eq!([(1, b"db=0,3,12".as_slice()), (0, b"resetdbs")].map(|(db, rule)| rule_in(db, rule)), [None; 2]);
    }
}
