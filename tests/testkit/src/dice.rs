//! Every decision of a simulation is a throw of these dice, and one seed decides all throws.

use std::time::Duration;

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of one part of a simulation: what one part throws does not move what another does.
    pub fn new(seed: u64, part: &str) -> Self {
        let mut dice =
            Self(part.bytes().fold(seed, |mixed, byte| mixed.rotate_left(9) ^ u64::from(byte) ^ (mixed << 1)));
        dice.next();
        dice
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        usize::try_from(self.next() % sides.max(1) as u64).unwrap_or_default()
    }

    /// From `least` to `most`.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.roll(most - least + 1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.roll(100) < chance
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }

    /// A time between two numbers of milliseconds.
    pub fn millis(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_millis(self.between(least, most) as u64)
    }
}
