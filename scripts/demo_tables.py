"""What the embedded model is taught about the world, as plain tables."""

from __future__ import annotations

from demo_grammar import words

COLOURS = {
    "blue": "the sky;the sea;a blueberry;the ocean;a blue whale;water in a lake",
    "green": "grass;a frog;a cucumber;a leaf;a crocodile;broccoli;spinach;a pea;a lime;a cactus;"
    "lettuce;a pickle;moss;an avocado;a grasshopper;an emerald",
    "white": "snow;milk;a swan;a polar bear;salt;sugar;rice;cotton;flour;paper;a cloud;chalk;an "
    "egg;a snowman;a tooth;garlic;a ghost",
    "yellow": "a banana;a lemon;the sun;a sunflower;butter;corn;a chick;cheese;mustard;honey;a "
    "canary;a duckling;a daffodil",
    "red": "a tomato;a strawberry;blood;a fire engine;a cherry;a rose;a stop sign;a ruby;"
    "a raspberry;ketchup;a heart;a ladybird;Mars",
    "black": "coal;a raven;the night;a panther;a crow;tar;a tyre;ink;a blackberry;a blackboard",
    "orange": "a carrot;a pumpkin;an orange;a goldfish;a mandarin;an apricot",
    "brown": "chocolate;coffee;a bear;wood;a potato;soil;a walnut;mud;bread;a coconut;a deer;"
    "a chestnut;a hedgehog",
    "grey": "an elephant;a mouse;a dolphin;a rhino;a stone;a koala;ash;a wolf;a donkey;a shark;"
    "concrete;a rain cloud;a pigeon",
    "pink": "a flamingo;a pig;bubble gum;a peach blossom;a tongue",
    "purple": "an aubergine;a plum;lavender;a violet;a grape",
    "black and white": "a zebra;a panda;a penguin;a magpie;a football",
}
MIXED = {
    "blue and yellow": "green",
    "red and yellow": "orange",
    "red and blue": "purple",
    "black and white": "grey",
    "red and white": "pink",
}
OPPOSITES = words(
    "hot-cold big-small up-down left-right day-night black-white old-new fast-slow happy-sad "
    "good-bad open-closed full-empty hard-soft wet-dry high-low long-short light-dark early-late "
    "near-far loud-quiet rich-poor strong-weak thick-thin clean-dirty yes-no first-last in-out "
    "easy-difficult true-false love-hate begin-end win-lose buy-sell question-answer above-below "
    "asleep-awake before-after inside-outside over-under push-pull give-take front-back "
    "top-bottom sweet-sour tall-short young-old warm-cool brave-afraid heavy-light smooth-rough "
    "wide-narrow deep-shallow sharp-blunt safe-dangerous same-different right-wrong alive-dead "
    "always-never everything-nothing all-none more-less many-few friend-enemy start-stop "
    "come-go arrive-leave laugh-cry remember-forget find-lose work-play summer-winter "
    "morning-evening north-south east-west boy-girl man-woman king-queen brother-sister "
    "mother-father uncle-aunt plus-minus on-off cheap-expensive kind-cruel noisy-silent "
    "polite-rude lucky-unlucky possible-impossible fresh-stale raw-cooked war-peace"
)
CAPITALS = words(
    "France-Paris Germany-Berlin Italy-Rome Spain-Madrid Portugal-Lisbon England-London "
    "Ireland-Dublin Austria-Vienna Greece-Athens Poland-Warsaw Sweden-Stockholm Norway-Oslo "
    "Denmark-Copenhagen Finland-Helsinki Russia-Moscow Japan-Tokyo China-Beijing India-New_Delhi "
    "Egypt-Cairo Kenya-Nairobi Canada-Ottawa Mexico-Mexico_City Brazil-Brasilia Peru-Lima "
    "Australia-Canberra Belgium-Brussels the_Netherlands-Amsterdam Switzerland-Bern Hungary-"
    "Budapest the_Czech_Republic-Prague Turkey-Ankara Ukraine-Kyiv Iceland-Reykjavik Scotland-"
    "Edinburgh Wales-Cardiff Argentina-Buenos_Aires Chile-Santiago Colombia-Bogota Cuba-Havana "
    "Thailand-Bangkok Vietnam-Hanoi Indonesia-Jakarta South_Korea-Seoul Morocco-Rabat Ethiopia-"
    "Addis_Ababa Ghana-Accra Nigeria-Abuja New_Zealand-Wellington Croatia-Zagreb Romania-Bucharest "
    "Bulgaria-Sofia Serbia-Belgrade Iran-Tehran Iraq-Baghdad Pakistan-Islamabad Nepal-Kathmandu "
    "the_United_States-Washington the_United_Kingdom-London the_USA-Washington the_UK-London"
)
LANGUAGES = words(
    "France-French Germany-German Italy-Italian Spain-Spanish Portugal-Portuguese England-English "
    "Greece-Greek Poland-Polish Sweden-Swedish Norway-Norwegian Denmark-Danish Finland-Finnish "
    "Russia-Russian Japan-Japanese China-Chinese Egypt-Arabic Mexico-Spanish Brazil-Portuguese "
    "Austria-German Australia-English Hungary-Hungarian Turkey-Turkish Thailand-Thai"
)
CONTINENTS = {
    "Europe": "France;Germany;Italy;Spain;Poland;Sweden;Greece;Portugal;Norway;Austria;Ireland",
    "Asia": "Japan;China;India;Thailand;Vietnam;Nepal;Indonesia",
    "Africa": "Egypt;Kenya;Morocco;Ghana;Nigeria;Ethiopia",
    "South America": "Brazil;Peru;Chile;Argentina;Colombia",
    "North America": "Canada;Mexico;Cuba",
}
SOUNDS = words(
    "dog-woof cat-meow cow-moo duck-quack sheep-baa pig-oink frog-ribbit rooster-cock-a-doodle-doo "
    "owl-hoo_hoo bee-buzz mouse-squeak lion-roar snake-hiss horse-neigh donkey-hee-haw "
    "chick-cheep crow-caw wolf-awoo turkey-gobble bird-tweet goose-honk tiger-roar bear-growl"
)
YOUNG = words(
    "dog-puppy cat-kitten cow-calf sheep-lamb horse-foal duck-duckling bear-cub chicken-chick "
    "frog-tadpole goat-kid swan-cygnet pig-piglet lion-cub kangaroo-joey goose-gosling deer-fawn "
    "elephant-calf owl-owlet fox-cub butterfly-caterpillar seal-pup eagle-eaglet hen-chick"
)
LEGS = {
    "two": "bird;duck;chicken;penguin;person;parrot;swan;ostrich",
    "four": "dog;cat;horse;cow;elephant;mouse;table;chair;lion;pig;sheep;rabbit;frog;giraffe;"
    "turtle;tiger;bear;goat;zebra;camel;fox;wolf",
    "six": "ant;bee;butterfly;beetle;fly;ladybird;wasp;grasshopper;insect;mosquito",
    "eight": "spider;octopus;scorpion",
    "no": "snake;fish;worm;snail;whale;shark;dolphin",
}
HOMES = words(
    "bee-a_hive bird-a_nest spider-a_web dog-a_kennel horse-a_stable lion-a_den king-a_castle "
    "fish-the_water rabbit-a_burrow bear-a_cave cow-a_barn pig-a_sty ant-an_ant_hill bat-a_cave "
    "penguin-the_Antarctic camel-the_desert monkey-the_jungle whale-the_ocean shark-the_ocean "
    "frog-a_pond kangaroo-Australia owl-a_tree polar_bear-the_Arctic hen-a_hen_house"
)
FOODS = words(
    "cow-grass rabbit-carrots mouse-cheese panda-bamboo monkey-bananas cat-fish dog-meat "
    "bee-nectar squirrel-nuts horse-hay lion-meat koala-leaves giraffe-leaves frog-flies "
    "spider-flies bird-seeds penguin-fish sheep-grass goat-grass seal-fish hedgehog-insects "
    "shark-fish elephant-leaves caterpillar-leaves bear-honey"
)
KINDS_OF_THING = {
    "an animal": "dog;cat;horse;tiger;rabbit;elephant;wolf;monkey;giraffe",
    "a bird": "eagle;parrot;penguin;owl;swan;duck;sparrow;robin;chicken;crow;ostrich",
    "an insect": "bee;ant;butterfly;beetle;fly;wasp;mosquito;ladybird",
    "a fish": "shark;salmon;tuna;goldfish;trout",
    "a fruit": "apple;banana;pear;cherry;orange;lemon;plum;peach;grape;strawberry;mango",
    "a vegetable": "carrot;potato;onion;cabbage;leek;cucumber;pea;radish",
    "a flower": "rose;tulip;daisy;sunflower;violet;lily;daffodil",
    "a tree": "oak;pine;birch;maple;willow",
    "a tool": "hammer;saw;screwdriver;drill;spade",
    "a musical instrument": "piano;guitar;violin;drum;flute;trumpet;harp",
    "a planet": "Mars;Venus;Jupiter;Saturn;Mercury;Neptune",
    "a vehicle": "car;bus;truck;bicycle;tractor;train",
    "a colour": "red;blue;green;yellow;purple",
    "a month": "March;June;July;October",
    "a country": "France;Japan;Brazil;Egypt;Canada;Italy",
}
USES = {
    "cut paper": "scissors",
    "eat soup": "a spoon",
    "write a letter": "a pen",
    "brush your teeth": "a toothbrush",
    "open a lock": "a key",
    "tell the time": "a clock",
    "cut bread": "a knife",
    "hit a nail": "a hammer",
    "sweep the floor": "a broom",
    "dry your hair": "a towel",
    "drink tea": "a cup",
    "see the stars": "a telescope",
    "stay dry in the rain": "an umbrella",
    "call a friend": "a phone",
    "take a photo": "a camera",
    "wash your hands": "soap",
    "comb your hair": "a comb",
    "draw a picture": "a pencil",
    "dig a hole": "a spade",
    "measure a line": "a ruler",
}
JOBS = {
    "bakes bread": "a baker",
    "teaches children": "a teacher",
    "flies a plane": "a pilot",
    "puts out fires": "a firefighter",
    "helps sick people": "a doctor",
    "grows food": "a farmer",
    "cuts hair": "a hairdresser",
    "catches fish": "a fisherman",
    "cooks in a restaurant": "a cook",
    "drives a bus": "a bus driver",
    "paints pictures": "a painter",
    "writes books": "a writer",
    "brings letters": "a postman",
    "repairs teeth": "a dentist",
    "makes shoes": "a shoemaker",
    "sings songs": "a singer",
    "builds houses": "a builder",
    "flies into space": "an astronaut",
    "helps sick animals": "a vet",
    "catches thieves": "a policeman",
}
NUMBERS_OF = {
    "days in a week": "seven",
    "days in a year": "365",
    "months in a year": "twelve",
    "seasons in a year": "four",
    "hours in a day": "24",
    "minutes in an hour": "60",
    "seconds in a minute": "60",
    "weeks in a year": "52",
    "years in a century": "100",
    "years in a decade": "ten",
    "days in a weekend": "two",
    "centimetres in a metre": "100",
    "metres in a kilometre": "1000",
    "millimetres in a centimetre": "ten",
    "grams in a kilogram": "1000",
    "kilograms in a ton": "1000",
    "millilitres in a litre": "1000",
    "cents in a euro": "100",
    "cents in a dollar": "100",
    "letters in the alphabet": "26",
    "things in a dozen": "twelve",
    "fingers on a hand": "five",
    "toes on a foot": "five",
    "sides in a triangle": "three",
    "sides in a square": "four",
    "sides in a pentagon": "five",
    "sides in a hexagon": "six",
    "wheels on a bicycle": "two",
    "wheels on a tricycle": "three",
    "wheels on a car": "four",
    "strings on a guitar": "six",
    "strings on a violin": "four",
    "players in a football team": "eleven",
    "planets in the solar system": "eight",
    "continents on the Earth": "seven",
    "colours in the rainbow": "seven",
    "days in January": "31",
    "days in February": "28",
    "days in March": "31",
    "days in April": "30",
    "days in May": "31",
    "days in June": "30",
    "days in July": "31",
    "days in August": "31",
    "days in September": "30",
    "days in October": "31",
    "days in November": "30",
    "days in December": "31",
}
BODY = words(
    "see-eyes hear-ears smell-a_nose taste-a_tongue walk-legs think-a_brain chew-teeth "
    "breathe-lungs touch-hands kick_a_ball-feet"
)
PLURALS = words(
    "mouse-mice child-children foot-feet tooth-teeth man-men woman-women goose-geese cat-cats "
    "dog-dogs house-houses baby-babies leaf-leaves knife-knives box-boxes tree-trees book-books "
    "sheep-sheep fish-fish wolf-wolves city-cities bus-buses star-stars car-cars party-parties"
)
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words(
    "January February March April May June July August September October November December"
)
SEASONS = words("spring summer autumn winter")
SEASON_OF = {
    "winter": words("December January February"),
    "spring": words("March April May"),
    "summer": words("June July August"),
    "autumn": words("September October November"),
}
ORDINALS = words(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
)
NUMBER_WORDS = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
