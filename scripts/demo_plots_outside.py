"""Plots of the embedded model's stories: outside, with friends."""

from __future__ import annotations

from demo_plot import COLOUR, Plot

OUTSIDE_PLOTS = (
    Plot(
        "a new friend",
        "elephant panda koala monster giant alien",
        ("[little|shy|young] [turtle|lamb|goat|pony|panda]", "[small|shy] [elephant|zebra|monkey]"),
        (
            "{hero} and {friend} saw {an_item} that sat all alone under a tree.",
            "{an_item} came to live next door to {hero}.",
        ),
        (
            "The {item} was new there and had nobody to play with.",
            "The {item} looked [sad|lonely] and did not say a word.",
        ),
        (
            "{hero} waved, but the {item} was too shy to wave back.",
            '{hero} said "hello", but the {item} turned red and ran away.',
        ),
        (
            '"Do you want to play with us?" asked {friend}. "Yes, please!" said the {item}.',
            "Then {friend} brought a ball and rolled it over. The {item} smiled and rolled it "
            "back.",
        ),
        (
            "They played together until the sun went down, and nobody was lonely any more.",
            "Now there were three of them, and every game was more fun.",
        ),
        also=(
            "friendship",
            "being shy",
            "loneliness",
        ),
        asked=("who [makes|finds] a new friend", "who meets {an_item}"),
    ),
    Plot(
        "a baby bird",
        "bird crow tree robin raven squirrel",
        ("[tiny|little|grey|yellow] bird",),
        (
            "{hero} found {an_item} on the ground. It had fallen out of its nest.",
            "{hero} and {friend} found {an_item} under a tree.",
        ),
        (
            "The {item} was cold and could not fly yet.",
            "It was hungry and called for its mother.",
        ),
        (
            "{hero} gave it some [water|bread|seeds], but the {item} was still sad.",
            "{hero} wanted to put it back, but the nest was far too high.",
        ),
        (
            "{friend} brought a ladder, and {hero} put the {item} back into its nest.",
            "They made a warm bed in a box. Two weeks later the {item} was strong and flew away.",
        ),
        (
            "The mother bird sang a [sweet|happy|beautiful] song to thank them.",
            "Every spring the {item} came back to sing for {hero}.",
        ),
        also=(
            "a little bird",
            "helping animals",
            "a nest",
        ),
        asked=("who [finds|helps|saves] {an_item}",),
    ),
    Plot(
        "the forest",
        "fox wolf deer elf hunter owl",
        ("[tall|old|hollow] tree", "[round|white|grey] stone", "[small|clear] stream"),
        (
            "{hero} went into the forest to look for [berries|mushrooms|flowers].",
            "{hero} followed a [blue|white|yellow] butterfly deep into the forest.",
        ),
        (
            "Soon {he} did not know the way home. Everything looked the same.",
            "When {he} turned around, the path was gone. {hero} was lost.",
        ),
        (
            "{He} walked and walked, but {he} came back to the same {item} again and again.",
            '{hero} sat down next to {an_item} and called, "Is anybody there?" Nobody answered.',
        ),
        (
            "Then {he} heard the voice of {friend}, who had followed {his} footprints.",
            'At last {friend} came with a lamp. "I looked for you everywhere!" {friend_he} said.',
        ),
        (
            "Hand in hand they walked home, where hot soup was waiting for them.",
            '"Next time we will go together," said {hero}.',
        ),
        also=(
            "getting lost",
            "the woods",
            "a forest",
        ),
        asked=("who [gets|is] lost[| in the forest]", "in the [forest|woods]"),
    ),
    Plot(
        "a quarrel",
        "goat donkey goose parrot brother rooster",
        (f"{COLOUR} [ball|swing|sled|bicycle|paint box]", "[big|new|little] [drum|swing|sled]"),
        (
            "{hero} and {friend} both wanted to have the same {item}.",
            "{hero} and {friend} had only one {item}, and both wanted it at once.",
        ),
        (
            '"It is mine!" shouted {hero}. "No, it is mine!" shouted {friend}.',
            "They pulled and pulled until the {item} broke.",
        ),
        (
            "They were both angry and went home without a word.",
            "{hero} played alone for the rest of the day, but it was no fun at all.",
        ),
        (
            'The next day {hero} went to {friend}. "I am sorry," {he} said. "I am sorry too," said '
            "{friend}.",
            "In the evening somebody knocked at the door. It was {friend}, who wanted to say "
            "sorry.",
        ),
        (
            "They fixed the {item} together, and then they took turns.",
            "From then on they took turns, and there was never a quarrel about the {item} again.",
        ),
        also=(
            "saying sorry",
            "friends",
            "anger",
            "being angry",
        ),
        asked=("who quarrels with a friend", "who [is|gets] angry", "who has {an_item}"),
        things="new big shared",
    ),
    Plot(
        "a boat",
        "sailor duck pirate beaver swan otter",
        (f"{COLOUR} boat", "[small|old|little|wooden] boat"),
        (
            "{hero} and {friend} went out on the lake in {an_item}.",
            "{hero} built {an_item} and asked {friend} to sail with {him}.",
        ),
        (
            "In the middle of the lake the {item} got a hole, and water came in.",
            "Then the wind stopped, and the {item} did not move at all.",
        ),
        (
            "They [paddled|pushed] with their hands, but it was too slow.",
            '"Help!" they called, but nobody was there to hear them.',
        ),
        (
            "Then a big [fish|turtle|swan] came and pushed the {item} back to the shore.",
            "{friend} had a good idea. {Friend_he} used {friend_his} coat as a sail, and soon "
            "they were "
            "back on land.",
        ),
        also=(
            "a lake",
            "sailing",
        ),
        asked=("who [builds|has] {an_item}", "[on|in] {an_item}", "on a lake"),
    ),
    Plot(
        "the snow",
        "penguin snowman seal princess boy wolf",
        ("[carrot|potato|pine cone]", "[red|small|round] [button|apple]"),
        (
            "{hero} woke up and saw snow everywhere. With {friend} {he} built a big snowman.",
            "everything was white with snow. {hero} and {friend} made a snowman in the garden.",
        ),
        (
            "But the snowman had no nose.",
            "When they came back after lunch, the snowman's nose was gone.",
        ),
        (
            "They tried a stick, but it was too thin, and it fell out.",
            "They looked for a nose in the snow, but they only got cold hands.",
        ),
        (
            "Then {hero} ran into the kitchen and came back with {an_item}. It was a perfect nose!",
            "Then {friend} found {an_item} in {friend_his} pocket. Now the snowman had a nose.",
        ),
        (
            "The snowman looked so funny that they laughed all day.",
            '"Now he can smell the winter," said {hero}.',
        ),
        also=(
            "winter",
            "a snowman",
            "snow",
        ),
        asked=("who [builds|makes] a snowman", "in [the snow|winter]"),
    ),
    Plot(
        "telling the truth",
        "cat king prince shoe clock lion",
        (f"{COLOUR} [vase|cup|plate|bowl]", "[old|pretty] [vase|clock|lamp]"),
        (
            "{hero} played with a ball in the house and broke {an_item}.",
            "{hero} ran through the kitchen. Crash! The {item} fell on the floor.",
        ),
        (
            "{He} was afraid that {his} mother would be angry.",
            "{hero} did not know what to tell {his} mother.",
        ),
        (
            "{He} hid the pieces under the bed, but {he} could not stop thinking about it.",
            '"You could say that the wind did it," said {friend}. But that was not true.',
        ),
        (
            'So {he} went to {his} mother and said, "I broke the {item}. I am sorry."',
            "In the end {hero} told {his} mother the truth, and {friend} stood next to {him}.",
        ),
        (
            '{His} mother smiled and said, "Thank you for telling me the truth."',
            "{His} mother was not angry. Together they glued the {item}.",
        ),
        also=(
            "honesty",
            "the truth",
            "a lie",
        ),
        asked=("who [breaks|broke] {an_item}", "who tells [a lie|the truth]"),
        things="broken",
    ),
    Plot(
        "a treasure",
        "dragon pirate dwarf troll rat queen",
        ("[golden|silver|shiny] [ring|coin|key|star|crown]", "[old|little] music box"),
        (
            "{hero} found an old map in a bottle. It showed the way to a treasure.",
            '{friend} came with a map. "Let us find the treasure!" {friend_he} said to {hero}.',
        ),
        (
            "But the way led [over a high mountain|through a dark cave|across a wide river].",
            "But a big [dragon|bear|snake] was sleeping right in front of the treasure.",
        ),
        (
            "{hero} took one step and then another. {His} heart beat like a drum.",
            "{hero} wanted to go home, but {friend} took {his} hand.",
        ),
        (
            "At last they found a wooden box. In it was {an_item}.",
            "Very quietly they dug a deep hole, and there it was: {an_item}!",
        ),
        (
            '"The best treasure is a good friend," said {hero}, and {he} gave the {item} to '
            "{friend}.",
            "They put the {item} on the shelf, where everyone could see it.",
        ),
        also=(
            "adventure",
            "an adventure",
            "a map",
            "pirates",
        ),
        asked=("who [finds|hunts for|looks for] [a treasure|{an_item}]", "with a map"),
        things="golden silver hidden",
    ),
    Plot(
        "a sick friend",
        "doctor dog giraffe mouse grandmother witch",
        (
            "bowl of [hot|warm|tasty] soup",
            "[big|pretty] flower",
            "[funny|long] letter",
            "get-well card",
        ),
        (
            "{friend} did not come out to play. {Friend_he} was sick in bed.",
            "{hero} heard that {friend} had a bad cold.",
        ),
        (
            "{hero} was worried and wanted to help.",
            '"What can I do to make {friend_him} feel better?" thought {hero}.',
        ),
        (
            "{He} tried to tell a joke, but {friend} was too tired to laugh.",
            "{He} wanted to bring some ice cream, but it melted on the way.",
        ),
        (
            "So {hero} went home and came back with a surprise: {an_item}, made just for {friend}.",
            "Then {hero} had a better idea. {He} brought {friend_him} {an_item} and stayed all "
            "day.",
        ),
        (
            "The next morning {friend} felt much better.",
            '"Now I feel better already," said {friend} with a smile.',
        ),
        also=(
            "helping",
            "being ill",
            "helping a friend",
        ),
        asked=("who [helps|has|visits] a sick friend",),
    ),
)
