//! The scenarios of tests/facts: what the module relies on, each shown by every server, real and simulated.

use std::fs;
use std::path::PathBuf;

use super::repository;
use super::scenario::Scenario;

/// The scenario of this name.
#[track_caller]
pub fn scenario(name: &str) -> Scenario {
    let path = path(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Scenario::parse(&text)
}

fn path(name: &str) -> PathBuf {
    repository().join("tests/facts").join(name).with_extension("scenario")
}

/// Makes a test of each scenario, which calls a function with its name: `for_each_fact!(shows)`.
#[macro_export]
macro_rules! for_each_fact {
    ($play:path) => {
        $crate::for_each_fact! { @list tests $play }
    };
    (@list $how:ident $($play:path)?) => {
        $crate::for_each_fact! {
            @$how $($play)?;
            a_blocked_client_closes
            a_blocked_client_is_killed
            a_blocked_client_is_unblocked_by_hand
            a_blocked_client_is_unblocked_with_an_error
            a_client_does_not_kill_itself
            a_client_is_unblocked_by_hand_once
            a_closed_connection_still_has_its_commands_run
            a_cluster_that_is_down
            a_cluster_that_is_down_keeps_its_subscribers
            a_command_that_the_module_has_carried_out
            a_context_says_where_it_is
            a_failover_ends_subscriptions
            a_key_is_restored
            a_key_is_there_through_its_last_millisecond
            a_key_is_what_it_holds
            a_kill_behind_an_unblock
            a_master_becomes_a_replica
            a_message_can_be_published_anywhere
            a_message_can_be_published_in_a_pause
            a_message_can_be_published_in_an_event
            a_message_goes_to_no_replica
            a_message_in_a_transaction_of_its_subscriber
            a_message_in_an_event_in_a_reply
            a_message_is_put_off_in_a_transaction
            a_message_reaches_who_has_subscribed
            a_message_to_a_blocked_client
            a_message_to_its_publisher
            a_message_without_a_subscriber_here
            a_move_takes_the_client_along_on_valkey_8
            a_new_role_is_not_told_to_subscribers
            a_pause_forbids_writes
            a_pop_that_waits_takes_what_the_module_adds
            a_pop_that_waits_takes_what_the_module_has_pushed
            a_quit_behind_a_blocked_command
            a_refused_command_spoils_its_transaction
            a_replica_becomes_a_master
            a_replica_has_the_keys_of_its_master
            a_replica_is_told_of_an_end_by_a_deletion
            a_replica_keeps_expired_keys
            a_replica_keeps_what_has_expired_when_it_is_told
            a_replica_that_takes_writes
            a_replica_waits_for_its_master_to_expire
            a_replica_whose_keyspace_changes
            a_right_to_a_channel
            a_right_to_a_channel_in_a_cluster
            a_right_to_a_channel_that_is_taken_away
            a_second_unblock_is_harmless
            a_slot_on_its_way
            a_slot_on_its_way_keeps_its_subscribers
            a_slot_that_leaves
            a_slot_that_leaves_takes_its_subscribers_along
            a_sorted_set_is_replicated_member_by_member
            a_sorted_set_is_what_it_holds
            a_subscriber_is_not_blocked
            a_subscriber_over_its_limit_counts
            a_subscriber_that_closes_counts
            a_subscriber_that_has_closed_counts
            a_subscriber_that_is_killed_does_not_count
            a_time_out_by_hand_behind_an_unblock
            a_timer_fires_on_an_idle_server
            a_timer_of_no_length_fires_in_the_round
            a_timer_outlasts_a_stall
            a_timer_that_the_timer_sets
            a_whole_keyspace_changes
            a_write_command_waits_for_the_end_of_a_pause
            a_write_is_replicated_behind_its_command
            an_answer_is_asked_for_in_the_call_or_at_the_end_of_the_round
            an_error_by_hand_behind_an_unblock
            an_eviction_tells
            an_expiry_in_the_past
            an_unblock_in_a_transaction
            answers_are_asked_for_in_the_order_of_the_calls
            client_numbers_are_not_used_again
            commands_behind_a_blocked_one_wait
            commands_expire_before_they_write
            events_by_which_a_key_comes
            events_by_which_a_key_goes
            events_by_which_an_expiry_moves
            events_by_which_members_of_sorted_sets_go
            events_name_their_database
            events_of_sorted_sets_come_when_asked_for
            getex_moves_an_expiry
            members_of_a_sorted_set_leave_in_the_transaction_of_their_command
            nobody_is_blocked_in_a_function
            nobody_is_blocked_in_a_transaction_or_a_script
            nobody_is_blocked_in_the_timer
            nobody_is_blocked_twice
            opening_an_expired_key_deletes_it
            others_hear_of_own_writes
            others_hear_of_own_writes_to_sorted_sets
            own_writes_tell_the_module_nothing
            patterns_and_plain_channels_are_others
            redis_7_2_asks_in_the_call
            the_cron_runs
            the_last_element_takes_its_key_along
            the_question_whether_a_write_is_welcome_writes_nothing
            the_server_expires_keys_by_itself
            the_timer_expires_before_it_writes
            the_timer_is_not_refused_a_write
            the_timer_unblocks
            the_timer_writes_behind_a_transaction
            time_stands_still_in_a_transaction
            to_ask_can_expire_the_key
            to_ask_for_a_slot_can_expire_the_key
            to_stay_a_master_is_no_change
            too_few_replicas
            waiting_outlasts_the_keyspace
            what_was_sent_behind_a_wait_goes_with_it
            who_waits_is_answered_in_a_pause
            writes_of_a_transaction_are_replicated_together
            writes_of_the_timer_are_replicated_together
        }
    };
    (@tests $play:path; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            $play(stringify!($name));
        })*
    };
    (@names; $($name:ident)*) => {
        [$(stringify!($name)),*]
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_played() {
        let files = fs::read_dir(repository().join("tests/facts")).expect("the folder of scenarios");
        let name = |path: std::path::PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let mut there: Vec<String> = files.filter_map(|file| name(file.expect("a file").path())).collect();
        there.sort_unstable();
        assert_eq!(there, crate::for_each_fact!(@list names));
        there.iter().for_each(|name| assert!(!scenario(name).lines.is_empty(), "{name}"));
    }

    #[test]
    fn every_scenario_says_who_relies_on_it() {
        for name in crate::for_each_fact!(@list names) {
            let text = fs::read_to_string(path(name)).expect("a scenario");
            let comment: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
            let named = comment.iter().find_map(|line| line.split_once('(')?.1.split_once(')'));
            let (files, _) = named.unwrap_or_else(|| panic!("{name}: nobody in parentheses"));
            for file in files.split(", ") {
                let there = ["src", ""].map(|folder| repository().join(folder).join(file).exists());
                assert!(there.contains(&true), "{name}: {file}");
            }
        }
    }
}
