"""Plots of the worlds that somebody made, and of caves: castle, ship, rocket, workshop, town."""

from __future__ import annotations

from demo_plot import Plot, world_plot

PLACE_PLOTS: dict[str, tuple[Plot, ...]] = {
    "cave": (
        world_plot(
            "the lost fire",
            "hot pepper;glowing coal",
            (
                "{hero} woke up in the cave, and {his} fire was gone. {He} had heard that "
                "{an_item} could help. // the fire in the cave went out. {hero} needed {an_item} "
                "to light it again.",
                "Without the fire it was cold and dark in the cave, and everybody laughed at a "
                "hero who made only smoke. // But the {item} was at the top of the mountain, where "
                "the wind was icy.",
                "{hero} ate stones, rubbed {his} hands and blew, but only a little smoke came out. "
                "// {hero} climbed up the mountain and slid down again, three times.",
                "Then {friend} found the {item} in the treasure. One bite, and the flames were "
                "back! // {friend} held {him} fast, and together they carried the {item} down the "
                "mountain into the cave.",
                "The fire burned brighter than ever, and the {item} got a place of honour in the "
                "cave. // They roasted chestnuts at the fire and laughed about the {item}.",
            ),
            also=("a fire that went out",),
        ),
        world_plot(
            "a thief in the cave",
            "golden cup;golden ring",
            (
                "{hero} counted the treasure in the cave, and {an_item} was missing. // somebody "
                "had come into the cave at night and taken {an_item}.",
                '{hero} was so angry that flames and smoke came out of the mountain. // "Who '
                'steals my gold?" roared {hero}, and the whole mountain shook.',
                "{hero} looked under every rock and asked every goat on the mountain. // {hero} "
                "lay down behind the treasure and waited all night by the fire.",
                "In the smoke {friend} saw small steps. They led to a poor child who only wanted "
                "to buy bread for the {item}. // Then a crow came through the smoke. It liked "
                "shiny gold things so much and had taken the {item} to its nest.",
                "{hero} was not angry any more. {He} gave away some of the gold and kept the "
                "{item}. // Since then guests may come to the cave, sit by the fire and look at "
                "the {item}.",
            ),
            also=("a thief",),
        ),
    ),
    "castle": (
        world_plot(
            "the lost crown",
            "golden crown;silver crown",
            (
                "there was a feast in the castle, but {an_item} was gone. {hero} had to find it. "
                "// {hero} should wear {an_item} at the royal feast, but it was not in the tower.",
                "Without the crown the king would not open the gate. // The guests already stood "
                "at the castle gate, and the trumpets sounded.",
                "{hero} looked under the throne, in the stable and in all seven towers of the "
                "castle. // {hero} tied a ring of paper around {his} head, but the whole castle "
                "laughed.",
                "Then {friend} heard the royal cat snore. It slept in the {item}, behind the "
                "throne! // {friend} saw a magpie fly to the highest tower. There, in its nest, "
                "was the {item}.",
                "The feast began, and the {item} shone in the light of a thousand candles in the "
                "castle. // And the castle danced until morning around the {item}.",
            ),
        ),
        world_plot(
            "a ball at the castle",
            "blue dress;pair of old boots",
            (
                "there was a ball at the castle, and {hero} had only {an_item}. // {hero} should "
                "dance before the king and the queen in {an_item}.",
                '"Nobody comes to the castle in {an_item}!" said the guard at the gate. // But '
                "{hero} could not dance, and the throne was full of proud faces.",
                "{hero} tried to get in through the tower window and got stuck. // {hero} "
                "practised all night in the stable with a horse.",
                "Then {friend} sewed little bells on the {item}, and at each step it sang. Even "
                "the queen clapped. // The music began, and {hero} and {friend} danced as they had "
                "danced with the horse. The king laughed.",
                "Soon everybody in the castle wanted to have {an_item}. // And the king himself "
                "asked for the {item} and danced through the castle.",
            ),
        ),
    ),
    "ship": (
        world_plot(
            "a treasure map",
            "torn treasure map;old treasure map",
            (
                "{hero} found {an_item} in a bottle on the deck of the ship. // an old captain "
                "gave {hero} {an_item} before {he} sailed away.",
                "But on the way to the island another ship with black sails followed them. // But "
                "one half of the {item} was wet, and nobody on the ship could read it.",
                "{hero} sailed to the left and to the right, but the other ship came nearer. // "
                "{hero} dug a hundred holes on the island and found only crabs.",
                "Then {friend} had an idea: they threw a wooden chest into the sea, and the other "
                "ship chased it. // {friend} held the {item} against the sun, and there was a "
                "second cross, under the big palm tree of the island.",
                "The treasure was theirs, and it was full of chocolate coins! The {item} hangs in "
                "the ship now. // They shared the treasure with the whole ship, and kept the "
                "{item}.",
            ),
            also=("a treasure map", "a treasure island"),
        ),
        world_plot(
            "a storm on the sea",
            "old compass;ship's lamp",
            (
                "{hero} stood on the deck of the ship with {an_item} when the sky turned black. // "
                "{hero} sailed home over the sea. On the ship {he} had {an_item}.",
                "The storm tore the sails, and the waves were as high as houses. // Lightning hit "
                "the mast, and water ran into the ship.",
                "{hero} turned the wheel with all {his} strength, but the ship went where the sea "
                "wanted. // {hero} and {friend} filled bucket after bucket, but the water in the "
                "ship rose.",
                "Then {friend} saw a light through the waves. {hero} looked at the {item} and "
                "steered the ship into a quiet bay. // {hero} held up the {item} so that {friend} "
                "could mend the ship, and they sailed through.",
                "In the morning the sea was as smooth as glass, and the {item} was wet but whole. "
                "// The ship was safe, and the captain gave {hero} the {item} for ever.",
            ),
        ),
    ),
    "space": (
        world_plot(
            "a landing on a strange planet",
            "blue crystal;glowing stone",
            (
                "{hero} landed the rocket on a strange planet to look for {an_item}. // the rocket "
                "had no power any more. Only {an_item} from the next planet could help {hero}.",
                "But on the planet everything was upside down, and {he} floated away. // But the "
                "planet was full of creatures with three eyes, who looked at the rocket.",
                "{hero} held on to a stone, but the stone floated, too, between the stars. // "
                "{hero} said hello in ten languages of space, but they only blinked.",
                "Then {friend} threw a rope from the rocket and pulled {him} back, with the {item} "
                "in {his} hand. // {friend} began to dance. The creatures danced, too, and brought "
                "the {item} to the rocket.",
                "The {item} made the engine hum, and the rocket flew home through the stars. // "
                "Now the {item} glows in the rocket, and they have friends on the planet.",
            ),
        ),
        world_plot(
            "the fallen star",
            "little star;silver star",
            (
                "{hero} found {an_item} on the planet. It had fallen from the sky. // one night "
                "{an_item} fell right in front of the rocket of {hero}.",
                'It was cold and did not shine any more among the planets. // "I want to go home," '
                "it cried. But home was at the other end of space.",
                "{hero} threw it up as high as {he} could, but it fell back on the planet. // "
                "{hero} wanted to glue it to the moon, but the moon was too round.",
                "So {hero} and {friend} put it into the rocket and flew up to the other stars. // "
                "{friend} filled the engine of the rocket, and they took the {item} to its place "
                "in space.",
                "Now the {item} blinks whenever the rocket flies past. // And if you look at the "
                "stars at night, the {item} is the one that winks at the rocket.",
            ),
            also=("a falling star",),
        ),
    ),
    "magic": (
        world_plot(
            "a spell that went wrong",
            "old spell book;crooked wand",
            (
                "{hero} found {an_item} and wanted to make it rain sweets by magic. // {hero} took "
                "{an_item} to try a new spell.",
                "But the spell went wrong, and everything in the magic tower began to grow. // But "
                "one word of the spell was wrong, and suddenly {friend} was a green frog.",
                "{hero} said the spell backwards, but now it rained frogs, and the magic smoke was "
                "pink. // {hero} turned the pages and shook the wand, but the magic only made "
                "bubbles.",
                "Then {friend} croaked the missing word. {hero} said it, and the magic was undone. "
                '// At last {hero} said the oldest spell of all: "I am sorry." And all was as '
                "before.",
                "Since then {hero} reads each spell twice before {he} uses the {item}. // The "
                "{item} lies in a magic chest now, and only {friend} has the key of the spell.",
            ),
            also=("a wrong spell",),
        ),
        world_plot(
            "the missing magic",
            "magic flower;magic mirror",
            (
                "{hero} woke up, and all {his} magic was gone. Only {an_item} could bring it back. "
                "// the magic of the forest grew weaker each day, and {hero} went to find "
                "{an_item}.",
                "But the {item} was guarded by three riddles, and no spell could help. // But the "
                "way to the {item} led through a magic mist in which everybody forgets their name.",
                "{hero} shouted every spell {he} knew, but the wand was as dead as a stick. // "
                "{hero} walked in circles in the magic mist and asked {himself} who {he} was.",
                "{friend} guessed the riddles, one, two, three, and the {item} began to glow with "
                "magic. // Then {friend} called {his} name, {hero} remembered, and there stood the "
                "{item} in magic light.",
                "The magic was back, and the {item} glowed in all colours. // {hero} knew now that "
                "a friend is stronger than any spell, and took the {item} home.",
            ),
        ),
    ),
    "workshop": (
        world_plot(
            "an empty battery",
            "red battery;big golden key",
            (
                "{hero} got slower and slower in the workshop. {He} needed {an_item}. // the big "
                "machine in the workshop stopped, and only {an_item} could help. {hero} went to "
                "look for it.",
                "But the shop was closed, and the wheels did not turn any more. // But the {item} "
                "was on the other side of the busy road, and {his} wheels were old.",
                "{hero} tried a potato as a battery, but it only smelled funny. // {hero} rolled "
                "forward and back again, for the engines of the cars were so loud.",
                "Then {friend} found the {item} in an old toy and put it into the machine. Click! "
                "The wheels turned. // {friend} pressed the button of the traffic light, and they "
                "got the {item} for the machine.",
                "All the tools of the workshop clapped, and the {item} hummed. // Now there is "
                "always {an_item} on the shelf in the workshop.",
            ),
        ),
        world_plot(
            "a new invention",
            "cake machine;machine that ties shoes",
            (
                "{hero} wanted to build {an_item} in the workshop. // there was a contest for the "
                "best machine, and {hero} built {an_item}.",
                "But when {he} pushed the button, the {item} threw screws at everybody. // But one "
                "gear was missing, and the {item} only made strange noises.",
                "{hero} hit it with a hammer, and two wheels fell off. // {hero} put in a spring, "
                "a spoon and an old clock, but the machine only burped.",
                "Then {friend} turned one screw to the left, and the {item} began to work. // "
                "{friend} gave {him} a button from {friend_his} coat. It was just the right gear "
                "for the {item}.",
                "Everybody came to the workshop to see the {item}. // The {item} won the first "
                "prize, and its wheels turned all night.",
            ),
            also=("an invention", "a machine"),
        ),
    ),
    "town": (
        world_plot(
            "the town's feast",
            "big drum;red accordion",
            (
                "there was a feast in the town, and {hero} wanted to play {an_item} in the street. "
                "// the town needed music for its market, and {hero} had only {an_item}.",
                "But the neighbours closed their windows in the whole street. // But the {item} "
                "made such a noise that the pigeons left the town.",
                "{hero} played louder, and then softer, but nobody in the street came out. // "
                "{hero} practised under the bridge until it was dark in the town.",
                "Then {friend} began to dance on the market, and one neighbour after the other "
                "came to dance, too. // {friend} sang to the {item}, and suddenly it sounded "
                "right. The windows of the street opened.",
                "The whole town danced, and the {item} was heard up to the bridge. // Since then "
                "{hero} plays the {item} in the town every Sunday.",
            ),
        ),
        world_plot(
            "the old neighbour",
            "heavy bag;lost purse",
            (
                "{hero} saw {an_item} on a bench in the park of the town. // an old neighbour "
                "stood in the street with {an_item}, and {hero} was late.",
                "It belonged to the old neighbour of whom all children in the street were afraid. "
                "// Everybody in the town said that the neighbour was a grumpy one.",
                "{hero} stood before the dark house and did not dare to ring. // {hero} looked to "
                "the left and to the right, but nobody else in the street was there to help.",
                "Then {friend} took {his} hand, and they rang together. The neighbour had tears in "
                "the eyes and gave them cookies. // {hero} took the {item} and carried it up all "
                'the stairs. "You are good children in this town," said the neighbour.',
                "Now they have a new friend in the street, and the {item} started it all. // And "
                "the whole town learned that the neighbour, with the {item}, was only lonely.",
            ),
        ),
    ),
    "kitchen": (
        world_plot(
            "the biggest cake",
            "giant cake;cake with seven floors",
            (
                "{hero} wanted to bake {an_item} in the kitchen. // the queen ordered {an_item} at "
                "the bakery, and {hero} had one day.",
                "But the cake grew and grew until it filled the oven and the whole kitchen. // But "
                "there was no sugar left in the kitchen, and all the shops were closed.",
                "{hero} pushed against the oven door, but the dough came out at the sides. // "
                "{hero} tried it with salt, and the soup and the cake tasted like the sea.",
                "Then {friend} called all the hungry children, and they ate a way through the "
                "cake. // {friend} brought a glass of honey. That was sweeter than all the sugar "
                "of the kitchen.",
                "Everybody got a piece of the {item}, and the oven could rest. // The {item} was "
                "so good that the bakery was famous.",
            ),
        ),
        world_plot(
            "the secret recipe",
            "old recipe;book of recipes",
            (
                "{hero} found {an_item} behind the oven of the kitchen. // {hero} wanted to cook "
                "soup after {an_item}.",
                "But the last word could not be read: the soup needs a pinch of something. // But "
                "the soup tasted of nothing at all, and the guests waited in the kitchen.",
                "{hero} tried pepper, sugar and flour, and the pot began to sneeze. // {hero} ran "
                "from shelf to shelf in the kitchen and tasted everything.",
                'Then {friend} smiled. "A pinch of love," {friend_he} read. So {hero} stirred the '
                "soup slowly and thought of {his} friends. // {friend} put in one leaf from the "
                "garden, and the soup was perfect.",
                "All the plates were empty, and the {item} is kept in the kitchen like a treasure. "
                "// And {hero} wrote one more line into the {item}: never cook soup alone.",
            ),
            also=("a secret recipe",),
        ),
    ),
}
