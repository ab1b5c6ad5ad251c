"""Plots of the embedded model's stories: far away, at school, and in the world of wonders."""

from __future__ import annotations

from demo_plot import COLOUR, Plot

FAR_PLOTS = (
    Plot(
        "magic",
        "wizard witch fairy unicorn queen elf",
        (f"{COLOUR} wand", "[magic|old|silver] [lamp|mirror|ring]", "[tiny|round] magic stone"),
        (
            "{hero} found {an_item} under an old tree. It glowed in the dark.",
            'a fairy gave {hero} {an_item}. "You have one wish," said the fairy.',
        ),
        (
            "{hero} wished for a mountain of cake, but soon {he} was too full to move.",
            "{hero} held the {item} up, and suddenly {friend} was as small as a mouse!",
        ),
        (
            '"Oh no," said {hero}. "What have I done?" {He} shook the {item}, but nothing '
            "happened.",
            "{hero} tried all the magic words that {he} knew, but none of them worked.",
        ),
        (
            'Then {hero} whispered, "Please make it all right again." And the {item} did.',
            "{friend} touched the {item} and counted to three, and everything was as before.",
        ),
        (
            "{hero} learned that you must be careful with your wishes.",
            '"A friend is better than any magic," said {hero}, and {friend} agreed.',
        ),
        also=("a wish", "a wizard's wand", "a magic wand", "wishes"),
        asked=("who [finds|has|gets] {an_item}", "with {an_item}", "who can do magic"),
        things="magic strange glowing",
    ),
    Plot(
        "the sea",
        "mermaid whale dolphin crab octopus fish",
        ("[pink|white|big|round] shell", "[golden|small] [starfish|pearl]"),
        (
            "{hero} and {friend} went to the beach. In the sand {hero} found {an_item}.",
            "{hero} walked along the sea with {friend} and picked up {an_item}.",
        ),
        (
            "Then a big wave came and washed the {item} away.",
            "They did not see that the water was rising. Soon it was all around them.",
        ),
        (
            "{hero} wanted to run into the waves, but the water was too deep.",
            '"What shall we do now?" asked {hero}. The waves grew bigger and bigger.',
        ),
        (
            "Just then a friendly dolphin came. It helped them and brought the {item} back, too.",
            "{friend} saw a fisherman and waved. He came with his boat and took them to the shore.",
        ),
        also=("the ocean", "the beach", "a dolphin's help", "a wave"),
        asked=("[at|by] the [sea|beach|ocean]", "who finds {an_item} on the beach"),
    ),
    Plot(
        "the moon",
        "astronaut star alien rocket cloud owl",
        ("[silver|tiny|bright] star", "[white|round|shiny] moon stone"),
        (
            "{hero} looked at the moon and wanted to fly there with {friend}.",
            "{hero} and {friend} built a rocket to fly to the moon.",
        ),
        (
            "The rocket went up and up, but then it ran out of fuel.",
            "They landed on the moon, but there was nobody to play with.",
        ),
        (
            "{hero} pressed every button, but the rocket stood still.",
            '{hero} called, "Hello! Is anybody here?" It was very quiet.',
        ),
        (
            "Then {friend} found {an_item}. They put it into the engine, and the rocket flew home.",
            "A little moon child heard them. He gave them {an_item} and showed them the way home.",
        ),
        (
            "Back at home, {hero} put the {item} next to {his} bed.",
            "Every night {hero} waved at the moon before {he} went to sleep.",
        ),
        also=("space", "a rocket", "the stars", "a star", "flying to the moon"),
        asked=("[in space|on the moon]", "who [flies|goes|wants to fly] to the [moon|stars]"),
    ),
    Plot(
        "school",
        "teacher girl boy pencil book scientist",
        ("[blue|red|new|old] [pencil|school bag|book]", "[long|short] poem"),
        (
            "it was the first day of school. {hero} had {an_item} and was very excited.",
            "{hero} went to school with {an_item}. {friend} sat next to {him}.",
        ),
        (
            "But then the teacher asked {him} a question, and {hero} did not know the answer.",
            "But {hero} was so shy that {he} could not say one word.",
        ),
        (
            "{His} face turned red. {He} looked at the floor and wanted to run home.",
            "{hero} opened {his} mouth, but nothing came out of it.",
        ),
        (
            '{friend} smiled at {him} and whispered, "You can do it." And then {hero} could.',
            "Then {friend} took {his} hand, and together they found the answer.",
        ),
        (
            '"Well done!" said the teacher, and {hero} was proud.',
            "After that day, {hero} liked school very much.",
        ),
        also=("a teacher", "the first day of school", "homework"),
        asked=("at school", "who [goes|has to go] to school", "who is shy"),
    ),
    Plot(
        "music",
        "singer bird frog goat butterfly king",
        ("[old|small|golden] [flute|drum|violin|trumpet|guitar]",),
        (
            "{hero} got {an_item} from {his} grandfather.",
            "{hero} heard that there would be a concert, and {he} took {an_item} from the shelf.",
        ),
        (
            "But when {hero} played it, it sounded terrible. Even the birds flew away.",
            "But the {item} was broken and made no sound.",
        ),
        (
            "{He} tried again and again, until {his} fingers hurt.",
            "{hero} wanted to throw the {item} away.",
        ),
        (
            '"Let me help you," said {friend}. They worked on it every day, and the music came.',
            "{friend} mended the {item} and sang along. It was the most beautiful song.",
        ),
        (
            "At the concert everybody clapped for {hero} and {friend}.",
            "Soon the whole village danced to their music.",
        ),
        also=("a song", "singing", "dancing", "a concert"),
        asked=("who [plays|has|gets] {an_item}", "who [loves|makes] music"),
    ),
    Plot(
        "a dream",
        "girl sheep boy koala cloud chair",
        ("[flying|golden|talking] [bed|ship|horse|carpet]",),
        (
            "{hero} fell asleep and dreamed of {an_item}.",
            "{hero} told {friend} about a dream with {an_item}.",
        ),
        (
            "In the dream, {hero} rode on the {item}, high above the clouds, and could not stop.",
            "In the dream, the {item} carried {him} to a land where nobody could laugh.",
        ),
        (
            '"Stop, please!" cried {hero}, but the {item} did not hear.',
            "{hero} made a funny face and told a joke, but it was still quiet.",
        ),
        (
            "Then {friend} came into the dream, too, and everything was fine.",
            "Then {he} woke up. {friend} stood by the bed and laughed.",
        ),
        (
            '"What a dream!" said {hero}. They drew a picture of it together.',
            "{hero} was happy to be at home in {his} own bed.",
        ),
        also=("sleep", "dreams", "dreaming", "bedtime"),
        asked=("who has a [strange |]dream", "who dreams of {an_item}"),
    ),
    Plot(
        "a storm",
        "miller sailor tree umbrella farmer horse",
        ("[old|tall|big] [oak tree|barn|mill]", "[small|wooden] hut"),
        (
            "dark clouds came over the hill, and {hero} and {friend} were far from home.",
            "{hero} and {friend} played outside when a storm began.",
        ),
        (
            "There was thunder and lightning, and the rain was as cold as ice.",
            "The wind was so strong that they could hardly stand.",
        ),
        (
            "{hero} was afraid and held on to {friend}.",
            "They ran as fast as they could, but the storm was faster.",
        ),
        (
            "Then {hero} saw {an_item}. They waited there until the storm was over.",
            '"Look, over there!" called {friend}. It was {an_item}, and it was dry inside.',
        ),
        (
            "When the sun came back, the whole world was clean and bright.",
            "They were wet and cold, but they were together, and that was enough.",
        ),
        also=("thunder", "bad weather", "the weather", "a thunderstorm"),
        asked=("in a storm", "who is afraid of [thunder|storms]"),
    ),
    Plot(
        "a present",
        "bear monk toaster prince robot dog",
        ("[small|big|round] box", f"{COLOUR} [parcel|scarf|hat]"),
        (
            "{hero} wanted to give {friend} a present. It was {an_item}.",
            "there was {an_item} in front of the door, with a letter for {friend}.",
        ),
        (
            "But on the way {hero} lost the {item}.",
            "But {hero} wanted to keep the {item}, and hid it in the cellar.",
        ),
        (
            "{He} did not sleep all night, and in the morning {he} felt terrible.",
            "{He} asked the mouse, the postman and the baker, but nobody could help {him}.",
        ),
        (
            "In the end {hero} went to {friend} and told {friend_him} everything, and the {item} "
            "was found.",
            "Then {hero} found the {item} again, tied a ribbon around it and gave it to {friend}.",
        ),
        (
            '"The best present is you," said {friend}.',
            "{friend} looked at the {item} and jumped for joy.",
        ),
        also=("a gift", "Christmas", "a surprise", "giving a present"),
        asked=("who [gives|has|brings] a present", "who gives away {an_item}"),
        things="small pretty beautiful",
    ),
    Plot(
        "food",
        "cook spoon teapot pig giant pumpkin",
        ("pot of [hot|tasty|green] soup", "[hot|big|round] [pizza|pancake|pie]"),
        (
            "{hero} was hungry and cooked {an_item}.",
            "{hero} wanted to make {an_item} for {friend}.",
        ),
        (
            "But {he} took salt instead of sugar, and it tasted awful.",
            "But {he} fell asleep, and when {he} woke up, there was smoke in the kitchen.",
        ),
        (
            '"I can\'t cook at all," said {hero} and sat down on the floor.',
            "{hero} opened the window and threw everything away.",
        ),
        (
            '"Let us cook together," said {friend}. This time the {item} was perfect.',
            "{friend} came with a big spoon and a cook book, and they made a new one.",
        ),
        (
            "They ate until there was nothing left.",
            "{friend} said that it was the best meal in the whole land.",
        ),
        also=("cooking", "a cook", "dinner", "being hungry", "soup"),
        asked=("who [cooks|makes] {an_item}", "who [loves|learns|wants] to cook"),
    ),
)
