"""Plots of the embedded model's stories: at home and in the garden."""

from __future__ import annotations

from demo_plot import COLOUR, Plot

HOME_PLOTS = (
    Plot(
        "a lost toy",
        "girl boy child robot clown puppy",
        (f"{COLOUR} [ball|scarf|toy car|hat|drum|kite|teddy bear|spinning top|toy boat]",),
        (
            "{hero} could not find {his} {item}.",
            "{hero} wanted to show {friend} {his} {item}, but it was gone.",
            "{hero} looked for {his} {item}, but it was not in its place.",
        ),
        (
            '"Oh no!" said {hero}. "My {item} is lost!" {He} [felt very sad|began to cry].',
            "The {item} was {his} favourite thing in the whole world, and {he} felt very sad.",
        ),
        (
            "{He} looked under the bed, behind the door and in the garden, but {he} did not find "
            "it.",
            "{hero} asked {friend} for help. They looked [everywhere|in every room], but they "
            "found "
            "[nothing|only an old shoe].",
        ),
        (
            'Then {friend} [looked up|had an idea]. "Look, it is in the [tree|tall grass|old '
            'basket]!" '
            "{friend_he} said. {hero} [jumped for joy|was so happy].",
            "At last {friend} found the {item} under [a bush|the stairs|a big leaf] and brought it "
            "back to {hero}.",
        ),
        also=("losing something",),
        asked=("who [lost|loses|can't find] [{an_item}|{his} {item}]",),
        things="lost missing",
    ),
    Plot(
        "a cat in a tree",
        "girl boy squirrel mouse detective grandmother",
        ("[black|white|grey|orange|little|brown] [kitten|cat]",),
        (
            "{hero} heard a small sound from a tall tree. It was {an_item}.",
            "{hero} and {friend} saw {an_item} at the top of a tree.",
        ),
        (
            "The {item} had climbed too high and could not come down.",
            '"Meow!" cried the {item}. It was [afraid|too scared to move].',
        ),
        (
            "{hero} tried to climb the tree, but the branches were too [thin|high|wet].",
            '{hero} called, "Come down, little cat!" But the {item} only held on to the branch.',
        ),
        (
            "Then {friend} brought a long ladder. {hero} climbed up slowly and carried the {item} "
            "down.",
            "{friend} put a bowl of milk under the tree. The {item} smelled it and came down, "
            "step by step.",
        ),
        (
            "The {item} purred and [rubbed against {his} legs|licked {his} hand].",
            "The {item} was safe, and it [wanted to stay|followed {hero} home].",
        ),
        also=("a kitten",),
        asked=("who [helps|saves|finds] {an_item}",),
    ),
    Plot(
        "a kite",
        "boy girl bird fox sailor kangaroo",
        (f"{COLOUR} kite", "[new|big|long|round] kite"),
        (
            "{hero} made {an_item} out of paper and string.",
            "{hero} and {friend} went to the hill to fly {an_item}.",
        ),
        (
            "The wind was strong. It pulled the string out of {his} hand, and the {item} flew "
            "away.",
            "Suddenly the {item} got stuck in a tall tree.",
        ),
        (
            "{hero} ran after it as fast as {he} could, but the wind was faster.",
            "{He} [jumped and jumped|threw a stick], but the {item} was too high.",
        ),
        (
            "Then a [kind|friendly|big] bird took the string in its beak and brought the {item} "
            "back.",
            "{friend} stood on a big stone, and {hero} stood on a box. Together they reached the "
            "{item}.",
        ),
        also=(
            "the wind",
            "flying a kite",
        ),
        asked=("who [flies|makes|has|loses] {an_item}", "with {an_item}"),
    ),
    Plot(
        "a picnic",
        "bear rabbit princess grandmother ladybird badger",
        ("[apple|cherry|lemon|carrot] cake", "[cheese|egg|tomato] sandwich", "[big|sweet] melon"),
        (
            "{hero} and {friend} packed a basket for a picnic. They took {an_item} and some juice.",
            "{hero} invited {friend} to a picnic by the river. {He} brought {an_item}.",
        ),
        (
            "But then dark clouds came, and it started to rain.",
            "But just as they sat down, [thunder rolled|big drops of rain fell] from the sky.",
        ),
        (
            "They tried to hide under a tree, but soon they were wet from head to toe.",
            "{hero} held the blanket over the basket, but the rain came through.",
        ),
        (
            "Then {friend} saw an old barn. They ran inside and ate the {item} there, warm and "
            "dry.",
            '"Let us have the picnic at home," said {friend}. They put the blanket on the floor '
            "and "
            "ate the {item} there.",
        ),
        (
            "Soon the sun came out again, and they saw a [big|bright|beautiful] rainbow.",
            '"This is the best picnic ever," said {hero}, and they both laughed.',
        ),
        also=(
            "rain",
            "a rainbow",
            "the rain",
        ),
        asked=("[who goes|going] on a picnic", "who has a picnic in the rain", "with {an_item}"),
    ),
    Plot(
        "a birthday",
        "baker mouse piglet grandmother cow hamster",
        ("[apple|cherry|lemon|chocolate|honey|carrot] cake",),
        (
            "it was {friend}'s birthday, and {hero} wanted to bake {an_item}.",
            "{hero} remembered that it was {friend}'s birthday. {He} decided to make {an_item}.",
        ),
        (
            "But there was no [sugar|flour|milk|butter] in the kitchen.",
            "But {he} had never baked a cake before, and {he} did not know how.",
        ),
        (
            "{hero} tried to make it alone, but the cake [was as hard as a stone|fell apart].",
            "{He} looked in every cupboard, but all {he} found was [salt|a sleepy mouse|an onion].",
        ),
        (
            "So {he} went to {his} grandmother, and she [showed {him} how to do it|helped {him}]. "
            "Soon the {item} was ready.",
            "A kind neighbour gave {him} what {he} needed. Two hours later the {item} was on the "
            "table.",
        ),
        (
            '"Happy birthday, {friend}!" said {hero}. {friend} [was so surprised|danced with joy].',
            "{friend} ate three pieces and said that it was the best cake in the world.",
        ),
        also=(
            "a cake",
            "baking",
            "a birthday party",
        ),
        asked=("who [bakes|makes] {an_item}", "at a birthday party"),
    ),
    Plot(
        "learning something new",
        "frog penguin robot bear snail hen",
        ("swim", "whistle", "skate", "juggle", "ride a bicycle", "play the flute", "dance"),
        (
            "{hero} decided to learn how to {item}.",
            "{hero} saw that {friend} could {item}. {He} wanted to learn it too.",
        ),
        (
            "It was much harder than {he} thought.",
            "But {he} was afraid that everyone would laugh at {him}.",
        ),
        (
            '{He} tried and tried, and each time it went wrong. "I can\'t do it," {he} said.',
            "{hero} practised all morning, but nothing worked, and {he} wanted to give up.",
        ),
        (
            '"Do not give up," said {friend}. "Try once more." And this time it worked!',
            "{friend} showed {him} how to do it, very slowly. Little by little, {he} got better.",
        ),
        (
            "Now {hero} could {item}, and {he} was very proud.",
            '"Look at me!" cried {hero}. "I can {item}!" {friend} clapped and cheered.',
        ),
        also=(
            "not giving up",
            "learning",
            "practice",
        ),
        asked=("who [learns|wants|tries] to {item}", "who can't {item}"),
    ),
    Plot(
        "a strange noise at night",
        "owl bat ghost kitten detective mole",
        ("[little|lost|sleepy] [owl|mouse|hedgehog|kitten]", "[loose|open] window", "branch"),
        (
            "{hero} came to {friend}'s house to stay there until the next day.",
            "{hero} and {friend} put up a tent in the garden to sleep in it.",
        ),
        (
            "In the middle of the night they heard a strange noise. Tap, tap, tap!",
            'When it was dark, something went "scratch, scratch". {hero} was afraid.',
        ),
        (
            "{He} pulled the blanket over {his} head, but the noise did not stop.",
            '"Is it a [monster|ghost]?" whispered {hero}. They held hands and did not move.',
        ),
        (
            "Then {friend} turned on the lamp. It was only {an_item}!",
            "At last {hero} took all {his} courage and looked outside. It was just {an_item}.",
        ),
        (
            "They laughed about it, and {hero} was not afraid of the dark any more.",
            '"So that was our monster," said {friend}, and they both laughed.',
        ),
        also=(
            "the night",
            "fear",
            "being afraid",
            "a ghost",
        ),
        asked=("who is afraid of [the dark|the night]", "who hears a strange noise"),
    ),
    Plot(
        "a race",
        "turtle horse car pony bicycle zebra",
        ("[golden|silver|shiny] cup", "[red|blue|golden] ribbon", "[big|sweet] honey cake"),
        (
            "there was a big race in the village. The prize was {an_item}.",
            "{hero} and {friend} wanted to run in a race and win {an_item}.",
        ),
        (
            "{hero} ran very fast. But near the end {friend} fell and hurt {friend_his} leg.",
            "{hero} was in front of everybody when {he} heard {friend} call for help.",
        ),
        (
            "{hero} looked at the finish line. {He} looked back at {friend}. What should {he} do?",
            "For a moment {hero} wanted to keep running, but {he} could not leave {friend} alone.",
        ),
        (
            "{He} turned around, helped {friend} up, and they walked over the line together.",
            "So {he} stopped and carried {friend} to the finish line. They came in last.",
        ),
        (
            "Everyone cheered, and the judge gave the {item} to both of them.",
            "They did not win the {item}, but {hero} had won something better: a friend for life.",
        ),
        also=(
            "winning",
            "running",
            "sport",
        ),
        asked=("who [runs|wins|is in] a race", "who wants to win {an_item}"),
    ),
    Plot(
        "a garden",
        "gardener bee farmer worm snail grandfather",
        ("[yellow|tall] sunflower", "[big|orange] pumpkin", "[red|white] rose", "apple tree"),
        (
            "{hero} planted a tiny seed in the garden. {He} wanted to grow {an_item}.",
            '{friend} gave {hero} a seed. "This will be {an_item}," {friend_he} said.',
        ),
        (
            "{He} waited and waited, but nothing happened.",
            "Days went by, and there was not one green leaf to see.",
        ),
        (
            "{hero} [sang a song to|talked to|danced around] the seed, but it did not grow.",
            '"Grow, little seed!" shouted {hero}. But the seed did not listen.',
        ),
        (
            '"You must give it water and time," said {friend}. So {hero} watered it every day, '
            "and one "
            "morning it was there: {an_item}!",
            "Then the [warm rain|spring sun] came, and {hero} waited. After many weeks, {an_item} "
            "stood in the garden.",
        ),
        (
            "{hero} learned that good things need time.",
            "{hero} was very proud and showed the {item} to everyone.",
        ),
        also=(
            "spring",
            "a seed",
            "patience",
            "flowers",
            "a flower",
        ),
        asked=("who [plants a seed|has a garden]", "who [grows|wants] {an_item}", "in a garden"),
    ),
)
