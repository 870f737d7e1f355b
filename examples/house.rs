//! Prints the house: the rooms of `src` from the ground up, what each uses, and what uses each other in a circle.
#![allow(clippy::print_stdout, reason = "what it finds is for whoever runs it")]

use decklog_testkit::house;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use house::House;

fn main() {
    let house = House::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    let rooms = house.rooms();
    let mut floors: BTreeMap<usize, Vec<&String>> = BTreeMap::new();
    for room in rooms.keys() {
        floors.entry(floor(room, &rooms, &mut BTreeSet::new())).or_default().push(room);
    }
    for (floor, names) in &floors {
        println!("floor {floor}");
        for room in names {
            let uses: Vec<&str> = rooms[*room].iter().map(String::as_str).collect();
            println!(
                "  {room:<12} {:>6} lines  uses {}",
                house.lines_of(room),
                if uses.is_empty() { "nothing".to_owned() } else { uses.join(", ") }
            );
        }
    }
    let arrows: usize = rooms.values().map(BTreeSet::len).sum();
    println!(
        "{} rooms, {arrows} arrows, {} modules, {} lines",
        rooms.len(),
        house.files.len(),
        house.lines.values().sum::<usize>()
    );
    for circle in house.circles_of_rooms() {
        println!("circle of rooms: {}", circle.join(", "));
    }
    for room in rooms.keys() {
        for circle in house.circles_of_parts(room) {
            println!("circle of parts of {room}: {}", circle.join(", "));
        }
    }
    for circle in house.circles() {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        println!("circle of {} modules: {}", names.len(), names.join(", "));
    }
}

/// One more than the highest that it uses; a room of a circle stands where the rest of it would.
fn floor(room: &str, rooms: &BTreeMap<String, BTreeSet<String>>, above: &mut BTreeSet<String>) -> usize {
    if !above.insert(room.to_owned()) {
        return 0;
    }
    let highest = rooms[room].iter().map(|used| floor(used, rooms, above)).max().unwrap_or(0);
    above.remove(room);
    highest + 1
}
