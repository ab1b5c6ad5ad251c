"""Facts that belong to no table, each with the questions that ask for it."""

from __future__ import annotations

from demo_tables import DAYS, MONTHS

_WORLD = (
    ("what do bees make", "Bees make honey."),
    ("where does milk come from|what gives us milk", "Milk comes from cows."),
    ("where do eggs come from|what lays eggs", "Eggs come from chickens."),
    ("where does wool come from|what gives us wool", "Wool comes from sheep."),
    ("what is bread made of|what is bread made from", "Bread is made of flour."),
    ("what is cheese made of|what is cheese made from", "Cheese is made of milk."),
    ("what is wine made of|what is wine made from", "Wine is made of grapes."),
    ("what is paper made of|what is paper made from", "Paper is made of wood."),
    ("what is glass made of|what is glass made from", "Glass is made of sand."),
    (
        "which planet do we live on|what planet do we live on|where do we live",
        "We live on the Earth.",
    ),
    ("what is ice|what is ice made of|what is frozen water", "Ice is frozen water."),
    ("what is steam", "Steam is very hot water in the air."),
    ("when does water freeze|at what temperature does water freeze", "Water freezes at 0 degrees."),
    ("when does water boil|at what temperature does water boil", "Water boils at 100 degrees."),
    ("where do fish live", "Fish live in water."),
    ("where does the sun rise|where does the sun come up", "The sun rises in the east."),
    ("where does the sun set|where does the sun go down", "The sun sets in the west."),
    ("when does the sun rise|when does the sun come up", "The sun rises in the morning."),
    ("when does the sun set|when does the sun go down", "The sun sets in the evening."),
    ("what goes around the Earth|what circles the Earth", "The moon goes around the Earth."),
    ("what does the Earth go around|what does the Earth circle", "The Earth goes around the sun."),
    ("what is the sun|is the sun a star", "The sun is a star."),
    ("what is the moon", "The moon is a ball of rock that goes around the Earth."),
    ("when can we see the stars|when do the stars shine", "The stars shine at night."),
    ("what do we breathe|what do people breathe", "We breathe air."),
    ("what do plants need|what does a plant need", "Plants need water, light and air."),
    ("what is the coldest season|which season is the coldest", "The coldest season is winter."),
    ("what is the warmest season|which season is the warmest", "The warmest season is summer."),
    ("in which season do leaves fall|when do the leaves fall", "Leaves fall in autumn."),
    ("when is Christmas|in which month is Christmas", "Christmas is in December."),
    (
        "when is New Year's Day|what day is New Year's Day",
        "New Year's Day is the first of January.",
    ),
    ("is a whale a fish", "No, a whale is a mammal."),
    ("is a bat a bird", "No, a bat is a mammal."),
    ("is a spider an insect", "No, a spider has eight legs, and an insect has six."),
    ("is a tomato a fruit", "Yes, a tomato is a fruit."),
    ("can fish fly|can a pig fly|can dogs fly|can a cat fly", "No, they can't fly."),
    ("can birds fly|can a bird fly", "Yes, most birds can fly."),
    ("who lives in a castle", "A king or a queen lives in a castle."),
    ("what is a rainbow|where does a rainbow come from", "A rainbow is sunlight in drops of rain."),
    ("where does rain come from|what brings rain", "Rain comes from clouds."),
    ("what falls from the sky in winter", "Snow falls from the sky in winter."),
    ("how many eyes do you have|how many eyes do people have", "People have two eyes."),
    ("how many ears do people have|how many ears does a person have", "People have two ears."),
    ("how many noses do people have|how many noses does a person have", "People have one nose."),
    ("what pumps blood|what does the heart do", "The heart pumps blood."),
    ("which city has the Eiffel Tower|where is the Eiffel Tower", "The Eiffel Tower is in Paris."),
    ("where is Big Ben|in which city is Big Ben", "Big Ben is in London."),
    ("where are the pyramids", "The pyramids are in Egypt."),
    ("where is the Great Wall|where can I see the Great Wall", "The Great Wall is in China."),
    ("who wrote Romeo and Juliet|who wrote Hamlet", "William Shakespeare wrote it."),
    ("who painted the Mona Lisa", "Leonardo da Vinci painted the Mona Lisa."),
    ("how many days are in a leap year|how many days has a leap year", "A leap year has 366 days."),
    ("what do cows drink|what do animals drink|what do people drink", "They drink water."),
    ("name three colours|name some colours|tell me three colours", "Red, blue and green."),
    ("name three animals|name some animals|tell me three animals", "A cat, a dog and a horse."),
    ("name a fruit|tell me a fruit|name some fruit", "Apples, pears and bananas are fruit."),
    ("what is H2O", "H2O is water."),
    ("is zero even|is zero odd or even", "Zero is even."),
    ("what is a dozen", "A dozen is twelve."),
    ("what is half of a half|what is half of one half", "Half of a half is a quarter."),
    ("what is a computer", "A computer is a machine that follows instructions."),
    ("what is Python", "Python is a programming language."),
    ("what is a book", "A book has many pages to read."),
    ("what is love", "Love is a warm feeling for somebody."),
    ("what is friendship|what is a friend", "A friend is somebody who likes you and helps you."),
    ("what is water|what is water made of", "Water is made of hydrogen and oxygen."),
    ("what is rain", "Rain is water that falls from clouds."),
    ("what is snow", "Snow is frozen water that falls from clouds."),
    ("what are the primary colours|name the primary colours", "They are red, yellow and blue."),
    (
        "what are the colours of the rainbow|name the colours of the rainbow",
        "They are red, orange, yellow, green, blue, indigo and violet.",
    ),
    (
        "what are the seasons|name the seasons|tell me the four seasons|list the seasons",
        "The seasons are spring, summer, autumn and winter.",
    ),
    (
        "what are the days of the week|name the days of the week|list the days of the week|"
        "tell me all the days of the week|what days are there",
        f"The days of the week are {', '.join(DAYS[:-1])} and {DAYS[-1]}.",
    ),
    (
        "what are the months of the year|name the months|list the months of the year|"
        "tell me all the months",
        f"The months are {', '.join(MONTHS[:-1])} and {MONTHS[-1]}.",
    ),
    (
        "what are the five senses|name the five senses",
        "The five senses are seeing, hearing, smelling, tasting and touching.",
    ),
    (
        "what are the planets|name the planets|list the planets",
        "They are Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.",
    ),
    (
        "say the alphabet|what is the alphabet|tell me the alphabet|recite the alphabet",
        "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z.",
    ),
    ("which days are the weekend|what is the weekend", "The weekend is Saturday and Sunday."),
    ("what is the shortest month|which month is the shortest", "The shortest month is February."),
    ("what is the first letter of the alphabet", "The first letter is A."),
    ("what is the last letter of the alphabet", "The last letter is Z."),
    ("what are the vowels|name the vowels", "The vowels are A, E, I, O and U."),
)
_RECORDS = {
    "largest animal": "the blue whale",
    "tallest animal": "the giraffe",
    "fastest animal on land": "the cheetah",
    "largest land animal": "the elephant",
    "largest bird": "the ostrich",
    "king of the animals": "the lion",
    "highest mountain": "Mount Everest",
    "largest planet": "Jupiter",
    "smallest planet": "Mercury",
    "red planet": "Mars",
    "hottest planet": "Venus",
    "planet with the rings": "Saturn",
    "closest planet to the sun": "Mercury",
    "largest ocean": "the Pacific Ocean",
    "largest country": "Russia",
    "smallest country": "Vatican City",
    "largest continent": "Asia",
    "smallest continent": "Australia",
    "coldest continent": "Antarctica",
    "largest desert": "Antarctica",
    "longest river in Africa": "the Nile",
    "largest forest": "the Amazon",
    "closest star": "the sun",
    "man's best friend": "the dog",
    "smallest bird": "the hummingbird",
    "hardest stone": "the diamond",
    "first day of the year": "the first of January",
}
_SYNONYMS = {"largest": "[largest|biggest]", "highest": "[highest|tallest]"}


def _wordings(name: str) -> tuple[str, ...]:
    for word, choice in _SYNONYMS.items():
        name = name.replace(word, choice)
    return (
        f"what is the {name}[| in the world]",
        f"what's the {name}",
        f"which is the {name}",
        f"[tell me|do you know|can you tell me|name] the {name}",
    )


def _records() -> list[tuple[tuple[str, ...], str]]:
    return [
        (_wordings(name), f"{thing[0].upper()}{thing[1:]} is the {name}.")
        for name, thing in _RECORDS.items()
    ]


SINGLE_FACTS: tuple[tuple[tuple[str, ...], str], ...] = (
    *((tuple(questions.split("|")), answer) for questions, answer in _WORLD),
    *_records(),
)
