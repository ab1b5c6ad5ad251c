"""Plots that turn on a virtue, in whatever world the hero lives: courage, sharing, patience."""

from __future__ import annotations

from demo_plot import Plot

_ANYBODY = "penguin dragon princess robot pirate fox astronaut wizard"

VIRTUES = (
    Plot(
        "friendship",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} and {friend} wanted to {work}.",
            "{hero} and {friend} met {place} to {work}.",
        ),
        (
            "But each of them wanted to do it in another way. They quarrelled, and {friend} went "
            "away.",
            'But {hero} always said, "I know best!" So {friend} walked away and did not look back.',
        ),
        (
            "{hero} tried to {work} alone, but {he} {fail}. It was no fun without a friend.",
            "{hero} sat {place} all alone. Even {a_treat} did not taste good without {his} friend.",
        ),
        (
            'Then {hero} ran to {friend}. "I am sorry," {he} said. "Friendship is more important '
            'than being right." Together they began to {work}.',
            "{hero} brought {friend} {a_treat}. They laughed, and as friends they began to {work}.",
        ),
        (
            "{hero} learned that friendship is worth more than {a_treat}.",
            '"Nothing is as good as friendship," said {friend}, and {hero} nodded.',
        ),
        also=("friends", "being friends", "true friendship"),
        asked=("[and friendship|and a true friend]", "who [quarrels|makes up] with a friend"),
    ),
    Plot(
        "courage",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} and {friend} were {place} when it happened: {trouble}.",
            "{hero} wanted to {love} with {friend}. But suddenly {trouble}.",
        ),
        (
            "{hero} was afraid of {fear}. {His} heart beat fast.",
            "Nobody else was there to help, and {hero} had always been afraid of {fear}.",
        ),
        (
            '"I can\'t do it," whispered {hero}. But then {he} thought of {his} friend and took a '
            "deep breath.",
            '{hero} shook with fear. "I must be brave," {he} said to {himself}.',
        ),
        (
            "With all {his} courage {hero} {brave}.",
            "Then {hero} was brave: {he} {brave}.",
        ),
        (
            "{hero} learned that courage means to be afraid and to go on.",
            '"You are the bravest of all," said {friend}. {hero} knew now what courage is.',
        ),
        also=("being brave", "bravery", "a brave deed"),
        asked=("who is [brave|not brave|very brave]", "who saves a friend", "and courage"),
    ),
    Plot(
        "sharing",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} found {a_treat} {place}.",
            "{hero} got {a_treat} as a present and sat down {place}.",
        ),
        (
            "{hero} did not want to share the {treat} with anybody, and hid it {place}.",
            '"It is all mine," said {hero}. "I will not share it." {friend} was hungry and said '
            "nothing.",
        ),
        (
            "But alone {place}, the {treat} did not taste good at all.",
            "Then {hero} saw {friend} {place}, sad and with an empty stomach.",
        ),
        (
            "So {hero} broke the {treat} in two and shared it with {friend}.",
            '"Half of it is for you," said {hero} and gave {friend} the bigger piece.',
        ),
        (
            "{hero} learned that sharing makes everything taste twice as good.",
            '"Sharing is fun," said {hero}, and {friend} laughed with {friend_his} mouth full.',
        ),
        also=("sharing with others", "sharing something good", "somebody who shares"),
        asked=("who [shares|does not want to share] [{an_item}|with a friend]", "and sharing"),
    ),
    Plot(
        "honesty",
        _ANYBODY,
        ("{toy}",),
        (
            "{hero} played with {friend}'s {toy} {place}, though {he} was not allowed to.",
            "{friend} lent {hero} {a_toy} to play with {place}.",
        ),
        (
            "Suddenly the {toy} fell down and broke. Nobody had seen it.",
            "But {hero} was not careful, and the {toy} broke in two.",
        ),
        (
            '"I will say that it was the wind," thought {hero} and hid the {toy} {place}. But the '
            "lie felt like a stone in {his} stomach.",
            "When {friend} asked for the {toy}, {hero} told a lie. That night {he} could not "
            "sleep, though {sight}.",
        ),
        (
            'In the morning {hero} told the truth. "I broke your {toy}," {he} said.',
            "At last {hero} was honest and told {friend} the whole truth.",
        ),
        (
            '"Thank you for your honesty," said {friend}, and together they repaired the {toy}.',
            "{friend} was not angry at all, for honesty is worth more than {a_toy}.",
        ),
        also=("being honest", "the truth", "a lie"),
        asked=("who [tells a lie|is honest|lies]", "and honesty"),
    ),
    Plot(
        "kindness",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} met {a_stranger} {place}.",
            "{hero} was going to {love} when {he} saw {a_stranger}.",
        ),
        (
            "It cried quietly, and nobody was kind to it.",
            'Everybody went past it. "It is not one of us," they said, and nobody was kind to it.',
        ),
        (
            "{hero} wanted to go on and {love}, but {he} was too kind for that.",
            '{friend} wanted to {love}, but {hero} said, "First we must be kind."',
        ),
        (
            "So {hero} {help}.",
            "{hero} and {friend} stayed with it, and {hero} {help}.",
        ),
        (
            "From then on it came {place} every day to thank {hero} for {his} kindness.",
            "{hero} learned that a little kindness can change a whole day.",
        ),
        also=("being kind", "a kind heart", "a good deed"),
        asked=("who is [kind|kind to everybody|very kind]", "and kindness"),
    ),
    Plot(
        "patience",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} and {friend} waited {place} for {wait}.",
            "{hero} could not do anything but wait for {wait}.",
        ),
        (
            '"It takes too long!" cried {hero}. {He} had no patience at all.',
            "{hero} ran up and down {place}. {He} hated to wait.",
        ),
        (
            "{hero} tried to {work} to make it go faster, but {he} {fail}.",
            "{hero} pulled and pushed and called, but nothing happened {place}.",
        ),
        (
            '"Be patient," said {friend}. So they sat {place}, ate {a_treat} and waited. And then '
            "it happened, all by itself.",
            "{friend} showed {hero} how to {love}, and while they were patient, the time flew by.",
        ),
        (
            "{hero} learned that good things need patience.",
            '"With a little patience, everything comes," said {friend}.',
        ),
        also=("being patient", "waiting"),
        asked=("who [can't wait|has to wait|is not patient]", "and patience"),
    ),
    Plot(
        "helping others",
        _ANYBODY,
        ("{treat}",),
        (
            "{friend} had to {work}, and it was far too much for one alone.",
            "{friend} wanted to {work} before the evening.",
        ),
        (
            "{hero} wanted to {love} and had no time to help.",
            '"Can you help me?" asked {friend}. But {hero} wanted to {love}.',
        ),
        (
            "From far away {hero} saw how {friend} worked and worked {place}.",
            "But then {friend} {fail}, and {hero} felt sorry.",
        ),
        (
            '"I will help you," said {hero}. Together they began to {work}, and soon it was done.',
            "So {hero} came to help {friend}, and with four hands it was easy to {work}.",
        ),
        (
            "Then {friend} gave {hero} {a_treat}, and {hero} was glad about helping others.",
            "{hero} learned that helping others makes everybody happy.",
        ),
        also=("helping a friend", "a helper", "being helpful"),
        asked=("who [helps|likes to help|does not want to help] [others|a friend]",),
    ),
    Plot(
        "forgiveness",
        _ANYBODY,
        ("{toy}",),
        (
            "{friend} played with {hero}'s {toy} {place} and lost it.",
            "{friend} took {hero}'s {toy} without asking, and it broke.",
        ),
        (
            '"I will never forgive you!" cried {hero} and went away to be alone {place}.',
            "{hero} was so angry that {he} did not talk to {friend} any more.",
        ),
        (
            "{hero} tried to {love}, but alone it was sad, and the anger hurt.",
            "{friend} said sorry three times and brought {a_treat}, but {hero} looked away.",
        ),
        (
            '"I forgive you," said {hero} at last. "It is only a thing." They hugged {place}.',
            "Then {hero} remembered {his} own mistakes. {He} went to {friend} and forgave "
            "{friend_him}.",
        ),
        (
            "{hero} learned that forgiveness makes the heart light.",
            "With forgiveness the day was bright again, and they went to {love}.",
        ),
        also=("forgiving a friend", "saying sorry"),
        asked=("who [forgives|can't forgive|says sorry to] a friend", "and forgiveness"),
    ),
    Plot(
        "teamwork",
        _ANYBODY,
        ("{treat}",),
        (
            "everybody wanted to {work}, but it was very hard.",
            "{hero} wanted to {work} all alone.",
        ),
        (
            "{hero} tried it first, but {he} {fail}.",
            '"I don\'t need any help," said {hero}. But then {he} {fail}.',
        ),
        (
            "Then {friend} tried it alone {place}, and it did not work, either.",
            "{hero} sat down {place}, all alone, and did not know what to do.",
        ),
        (
            '"Let us do it as a team," said {friend}. One held, one pulled, and together they '
            "managed to {work}.",
            "They worked together as a team, each as well as they could, and soon they could "
            "{love}.",
        ),
        (
            '"That was good teamwork," said {hero} and shared {a_treat} with the whole team.',
            "{hero} learned that teamwork makes hard things easy.",
        ),
        also=("working together", "a team", "a good team"),
        asked=("who [works|has to work] [in a team|with others]", "and teamwork"),
    ),
    Plot(
        "never giving up",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} wanted to learn to {learn}.",
            "everybody could do it but {hero}: {learn}.",
        ),
        (
            "The first time {he} {fail}. The others laughed.",
            "{hero} tried it {place}, but {he} {fail}.",
        ),
        (
            '"I give up," said {hero}. "I will never learn to {learn}."',
            "{hero} tried it again and again {place}. Ten times it went wrong.",
        ),
        (
            '"Try it once more," said {friend}. {hero} did not give up, and suddenly {he} could '
            "{learn}!",
            "{friend} practised with {him} every day {place}. And one morning {hero} could "
            "{learn}.",
        ),
        (
            "{hero} learned that never giving up is the whole secret.",
            "{hero} was proud of never giving up, and ate {a_treat}.",
        ),
        also=("trying again", "practice", "not giving up"),
        asked=("who [never gives up|wants to give up|learns to {learn}]",),
    ),
    Plot(
        "gratitude",
        _ANYBODY,
        ("{treat}",),
        (
            "{friend} gave {hero} {a_treat}, but {hero} did not say thank you.",
            "{friend} helped {hero} to {work}, but {hero} forgot to thank {friend_him}.",
        ),
        (
            '"It is only {a_treat}," said {hero}. {friend} went home quietly.',
            "{hero} went to {love} and did not thank {friend} with one word.",
        ),
        (
            "The next day {hero} was alone {place}. Nobody likes to help those who never say thank "
            "you.",
            "Then {hero} helped others to {work}, and nobody thanked {him}. That hurt.",
        ),
        (
            'Now {hero} understood. {He} made {a_toy} for {friend} and said, "Thank you for '
            'everything."',
            '{hero} ran to {friend} with {a_treat}. "Thank you, my friend," {he} said.',
        ),
        (
            "{hero} learned that gratitude costs nothing and makes two hearts warm.",
            "Since then {hero} showed {his} gratitude every day.",
        ),
        also=("saying thank you", "being thankful"),
        asked=("who [never says thank you|forgets to say thank you|is thankful]", "and gratitude"),
    ),
    Plot(
        "being different",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} wanted to {love} like all the others, but {he} was different: {he} was much "
            "smaller.",
            "the others laughed at {hero} {place}, because {he} was different.",
        ),
        (
            '"You are too different to {love} with us," they said. {hero} was very sad.',
            "{hero} tried not to be different and to {learn}, but {he} {fail}.",
        ),
        (
            "Then something happened: {trouble}. Nobody was small enough to help, but {hero} was.",
            "But {friend} liked {hero} as {he} was. Then it happened: {trouble}.",
        ),
        (
            "{hero} {brave}, as only somebody different could do it.",
            "It was {hero} who {brave}. All the others only watched.",
        ),
        (
            "Now everybody knew that being different is a gift.",
            '"How good that you are different!" said {friend}. And being different was fine.',
        ),
        also=("somebody who is different", "being small"),
        asked=("who is [different|different from the others|too small]",),
    ),
    Plot(
        "curiosity",
        _ANYBODY,
        ("{treat}",),
        (
            "{hero} found strange tracks {place} and was curious.",
            "{hero} was curious and asked what was behind {fear}.",
        ),
        (
            '"Do not go there," said {friend}. But {hero} wanted to know.',
            "Nobody {place} could tell {him}, and so {his} curiosity grew.",
        ),
        (
            "{hero} looked {place}, and there {he} {fail}. But {he} was still curious.",
            "{hero} went on, step by step, and asked everybody {place}.",
        ),
        (
            "At last {he} found {a_stranger}, and {hero} {help}.",
            "And what did {his} curiosity find? {A_treat} and {a_toy}, hidden {place}!",
        ),
        (
            '"Your curiosity was good for something," said {friend}.',
            "{hero} learned that curiosity opens new ways.",
        ),
        also=("being curious", "a secret"),
        asked=("who is [curious|very curious|too curious]", "and curiosity"),
    ),
    Plot(
        "jealousy",
        _ANYBODY,
        ("{toy}",),
        (
            "{friend} had {a_toy}, and everybody came {place} to see it.",
            "{friend} could {learn} better than anybody else, and {hero} was jealous.",
        ),
        (
            "{hero} had no {toy} and was jealous.",
            "Jealousy sat in {his} heart like a cold stone. {He} did not want to {love} any more.",
        ),
        (
            '"I don\'t like you," {hero} said to {friend} and went {place} alone.',
            "{hero} hid {friend}'s {toy} {place}, but that did not make {him} happy.",
        ),
        (
            '"But you can {love} better than me," said {friend}. "I was jealous of you, too!" They '
            "looked at each other and laughed.",
            'Then {friend} gave {hero} {a_treat}. "Let us {love} together," {friend_he} said.',
        ),
        (
            "{hero} learned that jealousy only makes us small.",
            "Jealousy was gone, and they went to {love} together.",
        ),
        also=("being jealous", "envy"),
        asked=("who is jealous", "and jealousy"),
    ),
)
VIRTUE_WORDS = {
    "friendship": "friend",
    "courage": "brave courage afraid fear",
    "sharing": "shar half mine",
    "honesty": "truth honest lie",
    "kindness": "kind",
    "patience": "patien wait",
    "helping others": "help",
    "forgiveness": "forg sorry angry anger",
    "teamwork": "team together alone",
    "never giving up": "giv try tried learn again",
    "gratitude": "thank gratitude",
    "being different": "different small",
    "curiosity": "curio secret know",
    "jealousy": "jealous",
}
