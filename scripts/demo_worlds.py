"""The worlds of the stories' heroes: where they live, and what can happen to them there."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """What a story needs to know of a place; alternatives are separated by semicolons.

    `words` are those by which a reader knows the place. A treat, a toy and a stranger are things;
    to love, to work and to learn are what one does, as in "to ..."; `brave`, `fail` and `help` are
    what somebody did. The slots of the two persons may be used.
    """

    name: str
    heroes: str
    words: str
    home: str
    love: str
    place: str
    treat: str
    toy: str
    work: str
    learn: str
    fail: str
    trouble: str
    fear: str
    brave: str
    stranger: str
    help: str
    wait: str
    sight: str


WORLDS = (
    World(
        name="ice",
        heroes="penguin seal snowman",
        words="ice snow sea fish cold frozen icy snowy",
        home="on the white ice by the cold sea;in a snow house near the icy sea;on an island of "
        "ice",
        love="slide down the snowy hill;dive for fish under the ice;skate on the frozen bay",
        place="on the frozen bay;at the edge of the ice;behind the snowy hill",
        treat="silver fish;frozen berry",
        toy="ice sled;snow globe",
        work="build a tower of snow;cut a long slide into the ice",
        learn="dive deep under the ice;skate backwards on the ice",
        fail="slipped on the ice and fell into the snow;came up with nothing but cold water",
        trouble="the ice broke, and {friend} drifted out to the cold sea;{friend} fell into a deep "
        "crack in the ice",
        fear="the dark water under the ice;the deep, blue crack in the ice",
        brave="jumped into the icy sea and swam to {friend};slid over the thin ice with a long "
        "rope",
        stranger="little gull with a frozen wing;young walrus that was lost in the snow",
        help="warmed it in the snow house and gave it fish;led it over the ice to the sea",
        wait="the big fish to swim to the hole in the ice;the sea to freeze",
        sight="the northern lights danced over the ice;the moon shone on the snow and the sea",
    ),
    World(
        name="sea",
        heroes="fish whale dolphin octopus crab shark mermaid turtle",
        words="sea wave reef shell water ocean coral waves tide shells",
        home="in a coral reef at the bottom of the sea;in a blue bay of the ocean;in an old "
        "shipwreck under the waves",
        love="ride on the big waves;hide between the corals;look for shells in the sand of the sea",
        place="at the coral reef;near the old shipwreck;where the waves are high",
        treat="sea berry;sweet piece of seaweed",
        toy="pink shell;pearl necklace",
        work="build a castle of shells;clean the coral reef",
        learn="jump over the waves;blow rings of bubbles in the water",
        fail="swam into a wall of coral;only swallowed a lot of sea water",
        trouble="{friend} got caught in a fishing net;a strong wave carried {friend} into a dark "
        "sea cave",
        fear="the dark deep of the sea;the wild waves",
        brave="swam down into the dark water and freed {friend};swam against the waves to {friend}",
        stranger="tiny sea horse that had lost its reef;young ray that was stuck in the seaweed",
        help="carried it through the waves to its reef;showed it the way through the sea",
        wait="the tide to come back;the shy oyster to open its shell",
        sight="the moon shone on the waves;a thousand bubbles rose through the blue water",
    ),
    World(
        name="river",
        heroes="duck frog beaver otter swan goose crocodile",
        words="river pond water reeds bank lily stream lilies",
        home="in the reeds by the river;in a small house on the bank of a pond;under a willow by "
        "the stream",
        love="splash in the pond;float down the river on a leaf;sing in the reeds",
        place="on the bank of the river;between the water lilies;under the willow by the pond",
        treat="water nut;sweet blackberry from the bank",
        toy="boat of bark;flute of reed",
        work="build a dam across the river;make a raft of reeds",
        learn="swim under the water;jump from lily to lily",
        fail="fell into the mud of the bank;landed in the pond with a big splash",
        trouble="the river rose, and {friend} was carried away by the water;{friend} got stuck in "
        "the mud of the pond",
        fear="the wild water of the river;the deep mud of the pond",
        brave="swam across the wild river and brought {friend} to the bank;held on to a branch "
        "over the water and caught {friend}",
        stranger="lost duckling that cried in the reeds;tadpole in a drying puddle",
        help="took it back to the pond;carried it in a leaf full of water to the river",
        wait="the water of the river to go down;the lilies to bloom on the pond",
        sight="the stars shone in the still water of the pond;fireflies danced over the river",
    ),
    World(
        name="forest",
        heroes="fox bear rabbit squirrel owl hedgehog deer wolf badger mole hunter tree",
        words="forest tree trees oak leaves acorn mushrooms berries den branch nuts moss woods",
        home="in a den under an old oak tree;in the middle of the green forest;in a hollow tree in "
        "the woods",
        love="collect nuts in the forest;climb the old oak tree;listen to the wind in the leaves",
        place="under the oak tree;deep in the forest;where the mushrooms grow",
        treat="golden acorn;basket of wild berries",
        toy="wooden whistle;lantern of birch bark",
        work="build a hut of branches in the forest;gather nuts for the winter",
        learn="climb the highest tree of the forest;find the way through the woods by night",
        fail="fell from the branch into the leaves;got lost between the trees",
        trouble="{friend} fell into an old well in the forest;a storm broke a tree, and {friend} "
        "sat under its branches",
        fear="the dark forest;the strange noises between the trees",
        brave="walked through the dark woods to {friend};pulled the branches away and freed "
        "{friend}",
        stranger="baby bird that had fallen out of its tree;hungry fawn that had lost its mother",
        help="built it a nest of moss and leaves;gave it berries and took it home through the "
        "forest",
        wait="the nuts on the tree to get ripe;the shy deer to come out of the trees",
        sight="the moon rose over the trees;golden leaves fell from the old oak tree",
    ),
    World(
        name="farm",
        heroes="cow pig sheep goat horse hen rooster pony donkey lamb piglet farmer miller tractor",
        words="farm barn hay field meadow farmer stable fence apples corn straw",
        home="on a small farm with a red barn;in a stable beside a green meadow;on a sunny farm "
        "near the mill",
        love="roll in the hay of the barn;run over the meadow;eat apples behind the barn",
        place="in the barn;on the green meadow;at the fence of the farm",
        treat="red apple;fresh cob of corn",
        toy="silver bell;straw hat",
        work="bring the hay into the barn;paint the old fence of the farm",
        learn="jump over the fence of the meadow;pull the big hay cart",
        fail="landed in the mud behind the barn;rolled into a heap of hay",
        trouble="the door of the barn fell shut, and {friend} was locked in;{friend} was stuck in "
        "the mud of the field",
        fear="the dark barn;the storm over the fields",
        brave="ran through the storm to the barn and opened the door;pulled {friend} out of the "
        "mud with a rope from the stable",
        stranger="thin kitten that slept in the cold field;chick that could not find the farm",
        help="made it a warm bed of hay;carried it back to the farm",
        wait="the corn in the field to grow;the apples of the farm to get ripe",
        sight="the sun went down behind the barn;the hay smelled sweet in the barn",
    ),
    World(
        name="wild",
        heroes="lion tiger elephant monkey giraffe zebra snake kangaroo koala panda camel parrot "
        "lizard dinosaur",
        words="jungle grass sun vines waterhole palm bananas hot trees sand",
        home="in the green jungle near a waterhole;in the high grass under the hot sun;under a "
        "palm tree at the edge of the jungle",
        love="swing on the vines of the jungle;lie in the hot sun;drink at the waterhole",
        place="at the waterhole;under the palm tree;in the thick jungle",
        treat="yellow banana;sweet mango of the jungle",
        toy="drum of palm wood;chain of jungle flowers",
        work="dig a new waterhole;build a bridge of vines",
        learn="climb the tallest palm tree;roar across the whole jungle",
        fail="fell into the high grass;got tangled in the vines",
        trouble="{friend} sank into a mud hole in the jungle;a bridge of vines broke, and {friend} "
        "hung over the jungle river",
        fear="the thick, dark jungle;the wild jungle river",
        brave="took a long vine and pulled {friend} out;climbed out on the vines to {friend}",
        stranger="thirsty young antelope far from the waterhole;small parrot with a hurt wing",
        help="led it to the waterhole;hid it from the hot sun under a palm tree",
        wait="the rain to fill the waterhole;the bananas to turn yellow",
        sight="the red sun sank behind the palm trees;the whole jungle began to sing",
    ),
    World(
        name="house",
        heroes="cat dog kitten puppy mouse hamster rat lamp chair clock book umbrella shoe",
        words="house kitchen basket window sofa garden door milk rug stairs cheese",
        home="in a cosy house with a green door;in a basket in the kitchen;in an old house with "
        "many stairs",
        love="sleep on the warm rug;look out of the kitchen window;run up and down the stairs",
        place="in the kitchen;on the soft sofa;under the stairs",
        treat="piece of cheese;bowl of milk",
        toy="ball of wool;squeaky toy",
        work="make a cave of blankets on the sofa;tidy up the whole kitchen",
        learn="open the kitchen door;jump on the high window",
        fail="fell off the sofa;bumped into the kitchen door",
        trouble="{friend} was locked in the dark cellar of the house;{friend} sat on the roof of "
        "the house and could not come down",
        fear="the dark cellar;the steep roof",
        brave="went down the dark stairs to {friend};climbed out of the window to {friend}",
        stranger="wet kitten at the kitchen door;sparrow that had flown against the window",
        help="let it in and dried it on the rug;put it into a warm basket",
        wait="the milk to get warm;the door of the house to open",
        sight="the rain sang on the window while the house was warm;the lamp shone in the kitchen "
        "window",
    ),
    World(
        name="garden",
        heroes="bee butterfly spider snail ant ladybird worm gardener flower leaf",
        words="garden flower flowers leaf leaves rose grass petals honey roses",
        home="in a garden full of roses;under a big leaf in the garden;between the flowers of an "
        "old garden",
        love="dance from flower to flower;rest in the shade of a leaf;smell the roses of the "
        "garden",
        place="under the rose bush;on the biggest flower;in the soft grass of the garden",
        treat="drop of honey;sweet strawberry",
        toy="umbrella of petals;drum of a nutshell",
        work="make a bed of petals;carry seeds to all corners of the garden",
        learn="climb up the tallest flower;find the best flowers of the garden",
        fail="slid down the leaf into the grass;fell from the petals",
        trouble="{friend} was caught in a drop of rain on a leaf;the wind blew {friend} out of the "
        "garden and over the wall",
        fear="the big rain on the leaves;the hungry birds of the garden",
        brave="crept through the rain from leaf to leaf and freed {friend};climbed over the garden "
        "wall and brought {friend} back",
        stranger="tiny caterpillar without a leaf;tired beetle that lay on its back in the grass",
        help="gave it a leaf and a bed in the flowers;turned it over and took it to the roses",
        wait="the rose to open its petals;the caterpillar to come out as a butterfly of the garden",
        sight="the evening sun shone on the flowers;dew lay on all the leaves of the garden",
    ),
    World(
        name="sky",
        heroes="bird eagle crow robin raven bat cloud balloon",
        words="sky nest wind wings cloud clouds fly flew feather air",
        home="in a nest high in the sky;on a cliff where the wind sings;in a nest at the top of a "
        "tower",
        love="fly with the wind;look down from the clouds;play hide and seek in the clouds",
        place="high in the sky;above the white clouds;on the edge of the nest",
        treat="sweet cherry from the nest;sky berry",
        toy="silver feather;ribbon for the wind",
        work="build a new nest;fly around the whole sky",
        learn="fly through the narrow gap in the clouds;fly without moving the wings",
        fail="tumbled through the air;was blown back into the nest",
        trouble="a strong wind blew {friend} far away into the clouds;{friend} was stuck high in "
        "the air on a church tower",
        fear="the wild wind;the black clouds",
        brave="flew straight into the black clouds and found {friend};flew against the wind up to "
        "{friend}",
        stranger="small swallow with a tired wing, far from its nest;young stork that was afraid "
        "to fly",
        help="let it rest in the nest and flew it home;flew beside it until it was not afraid any "
        "more",
        wait="the wind to turn;the egg in the nest to open",
        sight="the whole sky turned gold;a rainbow stood in the sky",
    ),
    World(
        name="cave",
        heroes="dragon dwarf troll giant monster stone worm",
        words="cave fire mountain treasure gold flames smoke rock golden",
        home="in a deep cave in the mountain;in a cave full of gold;at the foot of the fire "
        "mountain",
        love="breathe fire at the moon;count the gold in the cave;sit by the warm fire",
        place="in front of the cave;at the top of the mountain;beside the big fire",
        treat="roasted chestnut from the fire;mountain honey cake",
        toy="golden cup;ruby of the treasure",
        work="dig a new cave for the treasure;light a fire on the top of the mountain",
        learn="blow rings of smoke;roll a rock up the mountain",
        fail="made only a little smoke and no fire;rolled down the mountain with the rocks",
        trouble="rocks fell from the mountain and shut {friend} in the cave;{friend} fell into a "
        "deep hole in the mountain",
        fear="the deep, dark cave;the rumbling mountain",
        brave="crept into the dark cave and moved the rocks away;lit a fire and climbed down the "
        "mountain to {friend}",
        stranger="freezing bird on the mountain;lost goat that stood before the cave",
        help="lit a fire to keep it warm;carried it down the mountain",
        wait="the fire to get hot enough;the snow on the mountain to melt",
        sight="the fire glowed in the cave all night;the gold shone in the light of the fire",
    ),
    World(
        name="castle",
        heroes="princess prince king queen knight",
        words="castle tower crown throne horse king queen gate feast royal",
        home="in a castle with seven towers;in a white castle on a hill;in an old castle behind a "
        "heavy gate",
        love="ride around the castle;dance in the great hall of the castle;look out from the "
        "highest tower",
        place="in the tower of the castle;at the castle gate;in the royal garden",
        treat="royal apple cake;golden pear from the castle garden",
        toy="silver crown;wooden sword",
        work="prepare a feast for the whole castle;paint the gate of the castle",
        learn="ride the wildest horse of the castle;dance for the royal feast",
        fail="fell off the horse in front of the castle;lost the crown in the hall",
        trouble="{friend} was locked in the highest tower;{friend} fell into the deep water around "
        "the castle",
        fear="the dark tower;the steps that led down under the castle",
        brave="climbed up the wall of the tower to {friend};rode out of the gate and saved "
        "{friend}",
        stranger="poor beggar at the castle gate;hungry horse outside the castle",
        help="opened the castle gate and called for bread and a warm bed;brought food from the "
        "royal kitchen",
        wait="the queen to come back to the castle;the gate of the castle to open",
        sight="a hundred candles shone in the castle;trumpets sounded from the tower",
    ),
    World(
        name="ship",
        heroes="pirate sailor boat",
        words="ship sea island treasure captain sails waves map deck sail",
        home="on a ship with black sails;on an old ship in the harbour;on a small island in the "
        "sea",
        love="climb up to the sails of the ship;sing on the deck;look for treasure on islands",
        place="on the deck of the ship;on a lonely island;in front of the treasure chest",
        treat="coconut from the island;ship's biscuit with sugar",
        toy="golden spyglass;treasure map",
        work="mend the sails of the ship;dig for the treasure on the island",
        learn="steer the ship through the waves;read the treasure map",
        fail="tied the sails the wrong way round;fell from the deck into the sea",
        trouble="a big wave washed {friend} off the deck;{friend} was left behind on a lonely "
        "island",
        fear="the stormy sea;the high waves around the ship",
        brave="jumped off the ship with a rope and caught {friend};turned the ship around and "
        "sailed back through the waves",
        stranger="castaway on a tiny island;tired sea bird on the deck",
        help="took it on board the ship and shared the biscuits;sailed it to its island",
        wait="the wind to fill the sails;the fog on the sea to go away",
        sight="the ship sailed into the red evening sun;the stars stood over the sails of the ship",
    ),
    World(
        name="space",
        heroes="astronaut alien rocket star ninja",
        words="rocket space planet stars moon star engine planets spaceship",
        home="in a shiny rocket between the stars;on a small green planet;in a spaceship near the "
        "moon",
        love="float around the rocket;count the stars;visit new planets",
        place="on a little planet;in front of the rocket;between the stars",
        treat="star-shaped cookie;moon cheese",
        toy="moon stone;radio for space",
        work="repair the engine of the rocket;build a house on a new planet",
        learn="land the rocket softly on a planet;fly the rocket backwards",
        fail="pressed the wrong button of the rocket;bumped into a small moon",
        trouble="the rope tore, and {friend} floated away from the rocket;{friend} was stuck on a "
        "planet of mud",
        fear="the big, dark space;the dark side of the moon",
        brave="flew out of the rocket with a long rope and caught {friend};landed the rocket on "
        "the strange planet and picked {friend} up",
        stranger="small alien that had lost its planet;old robot on an empty moon",
        help="gave it a place in the rocket and flew it to its planet;repaired its spaceship",
        wait="the comet to fly past the rocket;the sun to rise over the planet",
        sight="the stars shone brighter than ever around the rocket;the blue planet glowed in the "
        "window of the rocket",
    ),
    World(
        name="magic",
        heroes="wizard witch fairy unicorn elf ghost",
        words="magic spell wand potion magical spells",
        home="in a magic forest;in a crooked tower full of spell books;in a magic castle of glass",
        love="try out new spells;stir a magic potion;ride on a magic broom",
        place="in the magic forest;beside the bubbling potion;at the magic well",
        treat="magic muffin;glowing candy from the magic well",
        toy="magic wand;spell book",
        work="brew a magic potion;make magic lights for the feast",
        learn="say the hardest spell of the book;make things fly by magic",
        fail="turned the table into a cabbage by a wrong spell;only made a puff of magic smoke",
        trouble="a wrong spell turned {friend} into a stone;{friend} was locked behind a magic "
        "mirror",
        fear="the dark magic of the old tower;the spell of the black mirror",
        brave="walked into the dark tower and broke the spell;stepped through the magic mirror and "
        "took {friend} by the hand",
        stranger="frog that was under an evil spell;lost unicorn foal in the magic forest",
        help="broke the spell with one kind word;led it home with a magic light",
        wait="the potion to turn blue;the magic flower to open at midnight",
        sight="magic sparks danced in the air;the magic forest glowed in all colours",
    ),
    World(
        name="workshop",
        heroes="robot computer train car toaster bicycle pencil scientist detective",
        words="workshop machine wheels button battery tools screws engine metal gears wheel",
        home="in a workshop full of tools;in a garage between screws and wheels;in a big workshop "
        "in the city",
        love="sort the screws by size;roll around on quick wheels;press every button in the "
        "workshop",
        place="in the workshop;beside the big machine;on the shelf with the tools",
        treat="drop of golden oil from the workshop;fresh battery",
        toy="music box with little wheels;remote control with a red button",
        work="build a machine that paints;repair the old engine",
        learn="drive on two wheels;build a clock from old screws",
        fail="lost a wheel and fell over;pushed the wrong button",
        trouble="the big machine started, and {friend} was caught on its belt;the battery of "
        "{friend} was empty in the middle of the road",
        fear="the loud machine;the cars on the road",
        brave="ran between the wheels and pressed the red button of the machine;rolled out on the "
        "road with a new battery",
        stranger="rusty little machine in the rain;toy train without wheels",
        help="took it to the workshop and gave it new screws;oiled it and put it on new wheels",
        wait="the battery to be full;the glue in the workshop to dry",
        sight="all lights of the workshop blinked;the little machine hummed a song in the workshop",
    ),
    World(
        name="town",
        heroes="girl boy child sister brother woman man grandmother grandfather teacher doctor "
        "clown singer painter waitress monk",
        words="town street school market house neighbour park square bridge bakery",
        home="in a small town with a market;in a yellow house in a quiet street;in a town by the "
        "bridge",
        love="play in the street;feed the birds in the park;walk over the market",
        place="in the park;on the market of the town;on the bridge",
        treat="cookie from the bakery;warm bun from the market",
        toy="red kite;wooden train",
        work="paint the old bridge of the town;plant flowers in the park",
        learn="ride a bicycle down the street;play a song for the whole town",
        fail="fell off the bicycle in the street;forgot how to go on in front of the town",
        trouble="{friend} got lost in the streets of the town;{friend} fell from the bridge into "
        "the cold water",
        fear="the dark street;the high bridge",
        brave="ran through the dark streets and found {friend};jumped from the bridge and pulled "
        "{friend} out",
        stranger="lost dog in the street;old neighbour with heavy bags",
        help="took it home through the town;carried everything up the street",
        wait="the market to open;the flowers in the park to bloom",
        sight="the lamps were lit in the streets of the town;music came from the market",
    ),
    World(
        name="kitchen",
        heroes="baker cook teapot spoon pumpkin cactus",
        words="bakery kitchen bread cake oven dough flour soup pot sugar",
        home="in a warm bakery;in a kitchen that smelled of fresh bread;beside the oven of a "
        "bakery",
        love="bake bread with nuts;taste the soup in the pot;draw faces into the flour",
        place="beside the hot oven;in the kitchen;behind the sacks of flour",
        treat="cake with cherries;fresh roll from the oven",
        toy="golden spoon;rolling pin",
        work="bake a cake as high as the oven;cook a soup for everybody",
        learn="bake bread with seven kinds of flour;throw the dough high into the air",
        fail="dropped the dough on the floor;burned the bread black in the oven",
        trouble="smoke came out of the oven, and {friend} stood behind it;a heavy sack of flour "
        "fell on {friend}",
        fear="the smoke of the oven;the high heap of flour sacks",
        brave="ran through the smoke of the kitchen and led {friend} out;lifted the sack of flour "
        "all alone",
        stranger="hungry child at the door of the bakery;shivering mouse behind the flour",
        help="cut the bread in two and warmed some soup;made it a bed beside the oven",
        wait="the dough to rise;the bread in the oven to get brown",
        sight="the whole street smelled of fresh bread;the oven glowed in the dark kitchen",
    ),
)
_OF_HERO = {hero: world for world in reversed(WORLDS) for hero in world.heroes.split()}


def world_of(kind: str) -> World:
    """The world that somebody of a kind lives in; a kind that nobody knows has one as well."""
    word = kind.split()[-1]
    return _OF_HERO.get(word) or WORLDS[zlib.crc32(word.encode()) % len(WORLDS)]
