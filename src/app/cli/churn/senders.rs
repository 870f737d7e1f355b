//! The table of who sent requests that wrote nothing.

use super::super::clock::moment;
use super::super::output::{TerminalStyle, count, sentence};
use super::{grid, heading, object};
use crate::query::churn::{SenderRow, Senders};

/// Adds the table, or the reason why there is none. `counted`: the API server's own counters stand above.
pub(super) fn section(lines: &mut Vec<String>, senders: &Senders, counted: bool, look: TerminalStyle) {
    let time = match (senders.first, senders.last) {
        (Some(first), Some(last)) => format!(": {} to {}, in whole hours", moment(first), moment(last)),
        _ => String::new(),
    };
    heading(lines, "SENDERS", &time, look);
    let mut say = |text: &str| lines.push(sentence(look, 2, None, text));
    if !senders.audit_log {
        say(
            "No audit log is read, so nobody is named: configure [[audit_log]], which the book describes (Who made a change).",
        );
    } else if !counted {
        say("The API server's own counters are not read; [cluster] request_metrics = true adds them.");
    }
    if senders.rows.is_empty() {
        if senders.audit_log {
            say("The audit log has no request of this time that is known to have written nothing.");
        }
        return;
    }
    say("By the audit log, writes that changed nothing, that came too late (409), or whose name was taken (409).");
    let number = |number: u64| if number == 0 { "-".to_owned() } else { count(number) };
    let rows = senders.rows.iter().map(|row| {
        let numbers = vec![number(row.no_op), number(row.conflicts), number(row.already_exists)];
        (numbers, None, spell(row))
    });
    grid(lines, &["NO-OP", "CONFLICT", "EXISTS", "SENDER"], rows.collect(), look);
}

/// `alice (kubectl/v1.36.0): patch deployments.apps/scale shop/web, 2026-11-21T10:00:00Z to 2026-11-21T10:50:00Z`
fn spell(row: &SenderRow) -> String {
    let mut text = row.user.clone();
    if !row.agent.is_empty() {
        text.push_str(&format!(" ({})", row.agent));
    }
    if !row.verb.is_empty() {
        let slash = if row.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{slash}{}", row.resource, row.subresource);
        // A name that the API server was to make up is not known.
        let object = if row.name.is_empty() { resource } else { object(&resource, &row.namespace, &row.name) };
        text.push_str(&format!(": {} {object}", row.verb));
    }
    if let (Some(first), Some(last)) = (row.first, row.last) {
        text.push_str(&format!(", {}", moment(first)));
        if last > first {
            text.push_str(&format!(" to {}", moment(last)));
        }
    }
    text
}
