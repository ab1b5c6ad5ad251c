"""The plots of the embedded model's stories, as templates: what happens, in five steps."""

from __future__ import annotations

from dataclasses import dataclass

_COLOUR = "[red|blue|green|yellow|white|black|brown|orange|golden]"
_LESSON = (
    '"Thank you, {friend}," said {hero}. "You are a [good|true|real|wonderful] friend."',
    '"We make a good team," said {friend}, and {hero} [laughed|nodded|smiled].',
    "{hero} learned that [everything is easier with a friend|good friends help each other].",
    "{hero} thanked {friend} and gave {friend_him} a big hug.",
)


@dataclass(frozen=True)
class Plot:
    """What a story is about: `topic` names it, `items` vary it, each step has several wordings.

    `setup` follows "One day,"; the steps may use the slots of the two persons and of the item.
    """

    topic: str
    items: tuple[str, ...]
    setup: tuple[str, ...]
    problem: tuple[str, ...]
    attempt: tuple[str, ...]
    resolution: tuple[str, ...]
    lesson: tuple[str, ...] = _LESSON


PLOTS = (
    Plot(
        "a lost toy",
        (f"{_COLOUR} [ball|scarf|toy car|hat|drum|kite|teddy bear|spinning top|toy boat]",),
        (
            "{hero} could not find {his} {item}.",
            "{hero} wanted to play with {his} {item}, but it was gone.",
            "{hero} looked into {his} toy box, and the {item} was not there.",
        ),
        (
            '"Oh no!" said {hero}. "My {item} is lost!" {He} [felt very sad|began to cry].',
            "It was {his} favourite thing in the whole world, and {he} felt very sad.",
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
    ),
    Plot(
        "a cat in a tree",
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
    ),
    Plot(
        "a kite",
        (f"{_COLOUR} kite", "[new|big|long|round] kite"),
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
    ),
    Plot(
        "a picnic",
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
    ),
    Plot(
        "a birthday",
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
    ),
    Plot(
        "learning something new",
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
    ),
    Plot(
        "sharing",
        ("[red|green|big|sweet] apple", "[ripe|yellow|sweet] pear", "piece of cake", "honey bun"),
        (
            "{hero} found {an_item} and wanted to eat it all alone.",
            "{hero} had {an_item} in {his} bag. It looked very tasty.",
        ),
        (
            "Then {he} saw {friend}. {Friend_he} was hungry and had nothing to eat.",
            '"I am so hungry," said {friend}. "I forgot my lunch today."',
        ),
        (
            "{hero} did not know what to do. There was only one {item}.",
            "At first {hero} hid the {item} behind {his} back, but then {he} felt bad.",
        ),
        (
            "So {he} cut the {item} in two and gave one half to {friend}.",
            '"Here, take half of it," said {hero}. They sat down under a tree and ate together.',
        ),
        (
            "It tasted twice as good because they shared it.",
            '"Next time I will share with you," said {friend}. And {friend_he} did.',
        ),
    ),
    Plot(
        "a strange noise at night",
        ("[little|lost|sleepy] [owl|mouse|hedgehog|kitten]", "[loose|broken] window", "branch"),
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
    ),
    Plot(
        "a race",
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
    ),
    Plot(
        "a garden",
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
    ),
    Plot(
        "a new friend",
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
    ),
    Plot(
        "a baby bird",
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
    ),
    Plot(
        "the forest",
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
    ),
    Plot(
        "a quarrel",
        (f"{_COLOUR} [ball|swing|sled|bicycle|paint box]", "[big|new|little] [drum|swing|sled]"),
        (
            "{hero} and {friend} both wanted to play with the same {item}.",
            "{hero} and {friend} had only one {item}, and both wanted to go first.",
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
    ),
    Plot(
        "a boat",
        (f"{_COLOUR} boat", "[small|old|little|wooden] boat"),
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
    ),
    Plot(
        "the snow",
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
    ),
    Plot(
        "telling the truth",
        (f"{_COLOUR} [vase|cup|plate|bowl]", "[old|pretty] [vase|clock|lamp]"),
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
    ),
    Plot(
        "a treasure",
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
    ),
    Plot(
        "a sick friend",
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
    ),
)
