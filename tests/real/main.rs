//! decklog against real Kubernetes: what it writes down has to equal etcd's own history.
//!
//! See tests/README.md for what runs here and how to run a part of it.
#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says why and fails")]
#![allow(unreachable_pub, missing_docs, reason = "nobody else can reach into a test")]

mod aggregating;
mod charted;
mod churning;
mod dating;
mod decklog;
mod electing;
mod enduring;
mod excluding;
mod extensions;
mod forgetting;
mod harness;
mod heavy;
mod incident;
mod judged;
mod living;
mod load;
mod lying;
mod naming;
mod oracle;
mod outages;
mod proxied;
mod quiet;
mod reading;
mod recovering;
mod returning;
mod reviewed;
mod rewriting;
mod rights;
mod robustness;
#[cfg(all(feature = "postgres", feature = "s3"))]
mod sharing;
mod syncing;
mod unreadable;
mod writing;

/// Scenarios whose answers differ between the minors of Kubernetes: which lists and watches come out of the cache and which out of
/// etcd, what bookmarks and the end of a watch say, and how discovery is aggregated.
macro_rules! against {
    ($module:ident, $version:ident) => {
        mod $module {
            use crate::aggregating;
            use crate::extensions;
            use crate::forgetting;
            use crate::harness::Version::$version;
            use crate::living;
            use crate::lying;
            use crate::quiet;
            use crate::recovering;
            use crate::unreadable;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_living_cluster_undisturbed_stopped_and_killed() {
                Box::pin(living::scenario($version)).await;
            }

            /// Fault 5, 15, 23: compacted while decklog is down, put back 300 writes later, made again under the same name.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_server_that_forgets_restarts_and_goes_back() {
                Box::pin(forgetting::scenario($version)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn resources_that_come_and_go() {
                Box::pin(extensions::scenario($version)).await;
            }

            /// API servers behind this one that have subresources alone, with and without aggregated discovery.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn what_another_server_says_of_itself_stops_nothing() {
                Box::pin(aggregating::scenario($version)).await;
            }

            /// Fault 5: the API server is killed and started again while another one goes on writing.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn what_happened_while_the_api_server_was_away_is_recovered() {
                Box::pin(recovering::restarts($version)).await;
            }

            /// Fault 5, 10, 23: watches have forgotten what etcd knows, and etcd some of it; a right is taken back meanwhile.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn what_is_recovered_is_what_a_watch_would_have_told() {
                Box::pin(recovering::stops($version)).await;
            }

            /// Fault 97: events are lost between etcd and the watch cache, which then shows in no watch and in no list.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_watch_cache_that_lies_is_caught_named_and_repaired() {
                Box::pin(lying::scenario($version)).await;
            }

            /// Fault 98: the encryption key of one object is lost, so that its type can be neither listed nor watched.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn an_object_that_cannot_be_read_costs_no_other_a_change() {
                Box::pin(unreadable::scenario($version)).await;
            }

            /// Nothing happens, and etcd is compacted all the time.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_quiet_resource_without_bookmarks_has_no_gap() {
                Box::pin(quiet::scenario($version)).await;
            }
        }
    };
}

/// Scenarios about what all minors do alike: writers, rights, the Lease, kubectl. The oldest minor runs them where everything is
/// run at its full length.
macro_rules! alike {
    ($module:ident, $version:ident) => {
        mod $module {
            use crate::churning;
            use crate::electing;
            use crate::excluding;
            use crate::harness::Version::$version;
            use crate::naming;
            use crate::outages;
            use crate::returning;
            use crate::rights;
            use crate::writing;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn careless_writers_fights_races_and_subresources() {
                Box::pin(churning::scenario($version)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_sender_of_a_change_is_named_right_or_not_at_all() {
                Box::pin(naming::scenario($version)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_writer_is_named_right() {
                Box::pin(writing::scenario($version)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn kubectl_brings_back_what_get_prints() {
                Box::pin(returning::scenario($version)).await;
            }

            /// The API server is killed and started again, several times in a row.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_source_is_back_two_seconds_after_the_api_server() {
                Box::pin(outages::scenario($version)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn namespaces_are_left_out_by_the_api_server() {
                Box::pin(excluding::scenario($version)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_lease_is_had_by_one_and_then_by_the_other() {
                Box::pin(electing::scenario($version)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn no_more_rights_than_rbac_prints() {
                Box::pin(rights::scenario($version)).await;
            }
        }
    };
}

#[cfg(all(feature = "postgres", feature = "s3"))]
mod kubernetes_1_36_shared {
    /// Two daemons with one log in PostgreSQL: stopped, killed, held up; restored on machines that have nothing.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_have_one_log_in_postgres() {
        let engine = crate::sharing::Engine::postgres().await;
        Box::pin(crate::sharing::scenario(crate::harness::Version::V1_36, engine)).await;
    }
}

#[cfg(all(feature = "postgres", feature = "s3"))]
mod kubernetes_1_33_shared {
    /// The same in a bucket.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_have_one_log_in_s3() {
        let engine = crate::sharing::Engine::s3().await;
        Box::pin(crate::sharing::scenario(crate::harness::Version::V1_33, engine)).await;
    }
}

mod kubernetes_1_36_alone {
    /// Argo CD and Flux with their own definitions; people and autoscalers write what they deploy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_sync_is_explained_and_every_drift_is_found() {
        Box::pin(crate::syncing::scenario(crate::harness::Version::V1_36)).await;
    }

    /// What happens while decklog is down, paused, or behind the watch cache is dated by the cluster's own Leases.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_deletion_that_nobody_saw_is_dated_to_seconds() {
        Box::pin(crate::dating::scenario(crate::harness::Version::V1_36)).await;
    }

    /// The questions of whoever is on call, during and after eight causes, an absence of decklog and a frozen API server.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_is_on_call_gets_right_answers() {
        Box::pin(crate::incident::scenario(crate::harness::Version::V1_36)).await;
    }

    /// The chart at a real API server, decklog as it starts it there, and what Prometheus finds of that.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_chart_is_installed_and_watched_over() {
        Box::pin(crate::charted::scenario(crate::harness::Version::V1_36)).await;
    }

    /// Fault 3, 5, 83: the API server is stopped for a minute; it forgets; its certificates are of a new authority.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_control_plane_frozen_killed_and_without_twenty_thousand_objects() {
        Box::pin(crate::enduring::scenario(crate::harness::Version::V1_36)).await;
    }

    /// Fault 5, 23, 96: decklog, the API server and etcd are killed, and etcd is compacted every two seconds; judged by etcd's own
    /// robustness suite over its write-ahead log, and by informers of client-go.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn judges_of_others_find_the_log_exact() {
        Box::pin(crate::robustness::scenario(crate::harness::Version::V1_36)).await;
    }

    /// The rotation of an encryption key, after which 2,000 objects are stored again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_storage_rewrite_is_one_line() {
        Box::pin(crate::rewriting::scenario(crate::harness::Version::V1_36)).await;
    }

    /// Objects of 1.5 MB that hold 745,000 values each, and people who look at them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn objects_of_very_many_values_stay_within_the_bound() {
        Box::pin(crate::heavy::scenario(crate::harness::Version::V1_36)).await;
    }
}

against!(kubernetes_1_36, V1_36);
against!(kubernetes_1_33, V1_33);
alike!(kubernetes_1_36_alike, V1_36);
alike!(kubernetes_1_33_alike, V1_33);
use decklog_testkit::judge;
use decklog_testkit::ports;
#[cfg(all(feature = "postgres", feature = "s3"))]
use decklog_testkit::servers::postgres;
#[cfg(all(feature = "postgres", feature = "s3"))]
use decklog_testkit::servers::s3;
