//! The words of the generated documents, and the sentences made from them.

use super::dice::Dice;

/// Nouns for the actor of a generated sentence.
const ACTORS: [&str; 40] = [
    "miller", "baker", "sailor", "widow", "smith", "clerk", "shepherd", "doctor", "weaver", "captain", "farmer",
    "singer", "painter", "judge", "porter", "tailor", "fisher", "mason", "nurse", "pilot", "printer", "ranger",
    "scholar", "servant", "soldier", "student", "teacher", "trader", "waiter", "writer", "cooper", "dancer", "diver",
    "drummer", "envoy", "glazier", "hunter", "jester", "king", "queen",
];

/// Nouns for the object of a generated sentence, and for the keys of generated lists.
pub(super) const NOUNS: [&str; 100] = [
    "anchor", "apple", "arrow", "barrel", "basket", "bell", "bench", "blanket", "boat", "book", "bottle", "box",
    "bread", "bridge", "broom", "bucket", "button", "candle", "card", "carpet", "cart", "chain", "chair", "cheese",
    "chest", "clock", "coat", "coin", "comb", "crown", "cup", "curtain", "desk", "door", "dress", "drum", "feather",
    "fence", "fiddle", "flag", "flute", "fork", "gate", "glass", "glove", "hammer", "harp", "hat", "helmet", "hook",
    "horn", "jar", "jewel", "kettle", "key", "kite", "knife", "ladder", "lamp", "lantern", "letter", "lock", "loom",
    "map", "mirror", "mug", "nail", "needle", "net", "oven", "paddle", "paper", "pear", "pencil", "picture", "pillow",
    "pipe", "plate", "plough", "pot", "purse", "quilt", "ring", "rope", "saddle", "sail", "saw", "scarf", "shield",
    "shoe", "shovel", "spoon", "stone", "sword", "table", "tent", "towel", "wagon", "wheel", "whistle",
];

/// Verbs in the past tense for generated sentences.
const DEEDS: [&str; 40] = [
    "bought", "broke", "brought", "built", "buried", "carried", "caught", "chose", "cleaned", "closed", "copied",
    "dropped", "earned", "fetched", "filled", "found", "gave away", "hid", "kept", "lent", "lifted", "liked", "lost",
    "made", "mended", "moved", "opened", "painted", "praised", "pulled", "pushed", "raised", "saw", "sent", "sold",
    "stole", "threw", "took", "touched", "wanted",
];

/// Adjectives for things and people in generated sentences.
const QUALITIES: [&str; 60] = [
    "old", "young", "tall", "small", "red", "blue", "green", "white", "black", "grey", "brown", "yellow", "heavy",
    "light", "broken", "clean", "dirty", "empty", "famous", "gentle", "golden", "happy", "hungry", "lazy", "lonely",
    "lucky", "merry", "narrow", "new", "noisy", "odd", "pale", "plain", "polite", "poor", "proud", "quick", "quiet",
    "rare", "rich", "rough", "round", "rusty", "sad", "sharp", "short", "shy", "silent", "silver", "simple", "sleepy",
    "slow", "smooth", "soft", "strange", "strong", "thin", "tired", "wet", "wise",
];

/// Adverbs of manner for generated sentences.
const MANNERS: [&str; 30] = [
    "badly", "boldly", "bravely", "calmly", "eagerly", "fondly", "gladly", "gravely", "hastily", "humbly", "idly",
    "kindly", "loudly", "madly", "mildly", "neatly", "nearly", "never", "often", "openly", "promptly", "rarely",
    "sadly", "secretly", "slowly", "softly", "stiffly", "twice", "warmly", "wearily",
];

/// Phrases for the place or time of the action in a generated sentence.
const PLACES: [&str; 40] = [
    "at the market", "at the mill", "at the well", "behind the barn", "behind the church", "below the bridge",
    "beside the canal", "beside the road", "by the fire", "by the sea", "in the attic", "in the cellar",
    "in the forest", "in the garden", "in the kitchen", "in the rain", "in the square", "in the tower",
    "in the valley", "near the border", "near the harbour", "near the lake", "near the school", "on the beach",
    "on the hill", "on the island", "on the roof", "on the stairs", "on the train", "outside the gate",
    "outside the inn", "over the river", "past the chapel", "under the oak", "under the table", "without a word",
    "within the walls", "before dawn", "after supper", "at midnight",
];

/// First names of the people in generated documents.
pub(super) const NAMES: [&str; 48] = [
    "Ada", "Alba", "Anton", "Astrid", "Bela", "Boris", "Bruno", "Carla", "Cecil", "Clara", "Conrad", "Dora", "Edgar",
    "Elsa", "Emil", "Erik", "Felix", "Flora", "Frida", "Gerda", "Greta", "Gustav", "Hanna", "Hugo", "Ida", "Igor",
    "Ines", "Ivan", "Jonas", "Julia", "Karl", "Klara", "Lars", "Laura", "Leon", "Lotte", "Lucas", "Marta", "Mira",
    "Nora", "Olga", "Oscar", "Otto", "Paula", "Rosa", "Simon", "Thea", "Viktor",
];

/// Trades of the people of the invented world.
pub(super) const TRADES: [&str; 40] = [
    "lens grinder", "salt boiler", "glass dyer", "rope maker", "beekeeper", "bell founder", "map maker", "tax clerk",
    "ferryman", "brewer", "saddler", "clockmaker", "midwife", "falconer", "gardener", "stone cutter", "wool buyer",
    "peat digger", "candle maker", "mule driver", "notary", "piper", "papermaker", "pearl diver", "potter",
    "sailmaker", "gravedigger", "shipwright", "soap boiler", "tanner", "thatcher", "tinker", "toll keeper", "vintner",
    "wheelwright", "wood carver", "spice seller", "bookbinder", "lamplighter", "charcoal burner",
];

/// Pets of the people of the invented world.
pub(super) const CREATURES: [&str; 24] = [
    "heron", "fox", "toad", "raven", "goat", "hare", "otter", "owl", "pony", "snake", "spider", "swan", "turtle",
    "weasel", "badger", "crane", "falcon", "ferret", "goose", "lizard", "magpie", "mole", "newt", "parrot",
];

/// Colours of the pets of the people of the invented world.
pub(super) const COLOURS: [&str; 12] =
    ["tawny", "black", "blue", "copper", "crimson", "golden", "grey", "pearl", "jade", "scarlet", "silver", "white"];

/// A sentence about an actor and an action. Its ornaments (adjectives, adverb, place) may be left out.
pub(super) struct Sentence {
    actor: &'static str,
    actor_quality: &'static str,
    manner: &'static str,
    deed: &'static str,
    thing: &'static str,
    thing_quality: &'static str,
    place: &'static str,
}

impl Sentence {
    /// Draws a sentence with its ornaments (adjectives, adverb, place). Each ornament is left out with probability one
    /// half.
    pub(super) fn draw(dice: &mut Dice) -> Sentence {
        fn ornament(dice: &mut Dice, all: &[&'static str]) -> &'static str {
            if dice.chance(50) { dice.pick(all) } else { "" }
        }
        Sentence {
            actor: dice.pick(&ACTORS),
            actor_quality: ornament(dice, &QUALITIES),
            manner: ornament(dice, &MANNERS),
            deed: dice.pick(&DEEDS),
            thing: dice.pick(&NOUNS),
            thing_quality: ornament(dice, &QUALITIES),
            place: ornament(dice, &PLACES),
        }
    }

    /// The sentence with its ornaments: "The tall miller gladly sold the cart by the sea."
    pub(super) fn ornate(&self) -> String {
        let Sentence { actor, actor_quality, manner, deed, thing, thing_quality, place } = self;
        let parts = ["the", actor_quality, actor, manner, deed, "the", thing_quality, thing, place];
        capital(&joined(&parts)) + "."
    }

    /// The sentence without ornaments: "the miller sold the cart".
    pub(super) fn plain(&self) -> String {
        joined(&["the", self.actor, self.deed, "the", self.thing])
    }
}

/// Draws a short clause of lower-case letters and single spaces.
pub(super) fn clause(dice: &mut Dice) -> String {
    let Sentence { actor, deed, thing, thing_quality, .. } = Sentence::draw(dice);
    joined(&["the", actor, deed, "the", thing_quality, thing])
}

/// The text with its first letter in upper case.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn joined(parts: &[&str]) -> String {
    let present: Vec<&str> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
    present.join(" ")
}
