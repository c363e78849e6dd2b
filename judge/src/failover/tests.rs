use super::rules::Rules;
use super::{Action, Faults, check};

const ONE_PROMOTION: Faults = Faults { promotions: 1, restarts: 0, stalls: 0 };

#[test]
fn claim_holds_for_one_promotion() {
    let outcome = check(Rules::all(2, 0), ONE_PROMOTION);
    assert!(outcome.story.is_none() && outcome.grants);
    assert!(outcome.states > 10_000, "{} states", outcome.states);
}

#[test]
fn shorter_period_has_two_holders() {
    let all = Rules::all(2, 0);
    let story = check(Rules { period: all.period - 1, ..all }, ONE_PROMOTION).story.expect("a counterexample");
    assert!(story.iter().any(|action| matches!(action, Action::Promote { .. })), "{story:?}");
}
