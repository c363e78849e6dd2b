//! The selectors of a user, each of which has rights of its own to commands, keys and channels.
//!
//! A user has the right to a command if one selector allows the command, its keys and its channels. The server
//! tells whether any selector allows the command with its keys, and whether any selector allows a channel. So the selectors are
//! checked one by one: the rules of each are given to a user of the module's own that has no other rules. Most users
//! have the root selector only, and need no second check.

use std::ffi::CString;

use redis_module::raw;

use super::acl_user::User;
use super::main_thread::MainThread;
use super::string::{Arguments, OwnedString, StringRef};

/// The user that gets the rules of one selector after the other. It is kept, because the server scans all clients when a user is
/// freed.
static SCRATCH: MainThread<Option<User>> = MainThread::new(None);

/// Returns whether one selector of a user allows both a command in this database and a channel. Each of them is allowed by some
/// selector.
pub(super) fn one_allows(user: &User, db: i32, arguments: Arguments<'_>, channel: StringRef<'_>) -> bool {
    // Redis has the function since 7.0.6.
    if !has_api!(RedisModule_GetModuleUserACLString) {
        return true;
    }
    // SAFETY: the user is valid; the string, unless it is null, is the module's.
    let rules = unsafe {
        let rules = api!(RedisModule_GetModuleUserACLString(user.raw()));
        if rules.is_null() { None } else { Some(OwnedString::from_raw(rules)) }
    };
    let Some(rules) = rules else { return false };
    let rules = rules.as_ref().bytes();
    if !has_selectors(rules) {
        return true;
    }
    // Nothing that is called here calls back.
    SCRATCH.with(|scratch| {
        if scratch.is_none() {
            // SAFETY: the server copies the name; the handle is the module's.
            *scratch = unsafe { User::from_raw(api!(RedisModule_CreateModuleUser(c"scratch".as_ptr()))) };
        }
        let Some(scratch) = scratch else { return false };
        selectors(rules).iter().any(|selector| {
            set_rules(scratch, db, selector) && scratch.may_publish_on(channel) && scratch.may_run(arguments)
        })
    })
}

/// Frees the scratch user, when the module is unloaded.
pub(super) fn clear() {
    SCRATCH.replace(None);
}

/// Gives these rules to a user, which loses all others. Returns whether the server has taken them all, and they allow this
/// database.
fn set_rules(user: &User, db: i32, rules: &[&[u8]]) -> bool {
    [b"reset".as_slice()].iter().chain(rules).all(|&rule| {
        let Some(Ok(rule)) = rule_in(db, rule).map(CString::new) else { return false };
        // SAFETY: user and rule are valid during the call.
        unsafe { api!(RedisModule_SetModuleUserACL(user.raw(), rule.as_ptr())) == raw::REDISMODULE_OK as i32 }
    })
}

/// Returns what a rule means in a database, `None` if it does not allow the database.
///
/// Valkey 9.1 has rules for databases. When a module asks about a command, Valkey does not take the client's database into
/// account, and refuses the command because of such a rule.
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
    fn rule_for_databases_counts_for_those_only() {
        assert_eq!(rule_in(3, b"+get"), Some(b"+get".as_slice()));
        assert_eq!([3, 12].map(|db| rule_in(db, b"db=0,3,12")), [Some(b"alldbs".as_slice()); 2]);
        assert_eq!([(1, b"db=0,3,12".as_slice()), (0, b"resetdbs")].map(|(db, rule)| rule_in(db, rule)), [None; 2]);
    }
}
