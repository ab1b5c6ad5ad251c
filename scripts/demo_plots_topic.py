"""Plots of the embedded model's stories that fit whatever a story is asked to be about."""

from __future__ import annotations

from demo_plot import Plot

TOPIC_PLOTS = (
    Plot(
        "a talk",
        "teacher owl mouse robot scientist boy",
        ("[thick|old|little] book",),
        (
            "the teacher asked {hero} to give a talk about {about}.",
            "{hero} was asked to tell the whole village about {about}.",
        ),
        (
            "But {he} did not know enough about {about}.",
            "{hero} was so shy that {he} did not want to talk about {about} at all.",
        ),
        (
            "{He} asked the postman and the baker, but they knew nothing about {about}.",
            "{He} wrote down what {he} knew about {about}, but it was only one line.",
        ),
        (
            "Then {friend} brought {an_item} about {about}, and they read it together.",
            '"I will help you," said {friend}. {Friend_he} had {an_item} about {about}.',
        ),
        (
            "The next day {hero} told everyone about {about}, and they all clapped.",
            '"I never knew that about {about}!" said the teacher. {hero} was very proud.',
        ),
    ),
    Plot(
        "a picture",
        "painter pencil princess bear child cloud",
        ("[big|small|beautiful] picture",),
        (
            "{hero} wanted to paint {an_item} about {about}.",
            "there was a contest for the best picture about {about}. {hero} wanted to win it.",
        ),
        (
            "But the picture about {about} looked [funny|strange], and {he} was sad.",
            "But {he} had only [black|grey|brown] paint, and that was not right for {about}.",
        ),
        (
            '"I can\'t paint {about}," said {hero} and put the brush away.',
            "{He} tried it ten times, but nobody could see that it was about {about}.",
        ),
        (
            '"Close your eyes and think of {about}," said {friend}. {hero} did, and then {he} '
            "painted {an_item}.",
            "{friend} brought [red and blue|green and yellow] paint, and they painted {about} "
            "together.",
        ),
        (
            "Soon the {item} about {about} hung on the wall, and everyone liked it.",
            '"That is the best picture about {about}," said {friend}, "because you made it."',
        ),
    ),
    Plot(
        "a song",
        "singer bird frog king whale rooster",
        ("[new|little|happy] song",),
        (
            "{hero} wanted to sing {an_item} about {about}.",
            "the king wished for {an_item} about {about}, and {hero} began to write it.",
        ),
        (
            "But {he} could not find the right words for {about}.",
            "But there was no word that sounded like {about}, and {he} got stuck.",
        ),
        (
            "{hero} sat at the window and thought about {about}, but no song came.",
            '{He} sang "la la la" all morning. But that was no song about {about}.',
        ),
        (
            "Then {friend} told {him} what {friend_he} liked about {about}, and the {item} was "
            "there.",
            "{friend} played the drum, and soon they had {an_item} about {about}.",
        ),
        (
            "Everyone danced, and nobody forgot the {item} about {about}.",
            "They sang about {about} until the sun went down.",
        ),
    ),
    Plot(
        "liking something",
        "cat dragon girl wizard rabbit clown",
        ("[long|funny] story",),
        (
            '{friend} said, "I don\'t like {about}."',
            "{hero} talked about {about}, but {friend} did not want to listen.",
        ),
        (
            "{hero} was sad, because {he} loved {about} so much.",
            '"But {about} can be so much fun!" said {hero}. {friend} shook {friend_his} head.',
        ),
        (
            "{hero} tried to talk about something else, but {he} always thought of {about}.",
            "{hero} went home alone and dreamed of {about}.",
        ),
        (
            "The next day {hero} told {friend} {an_item} about {about}, and {friend} laughed.",
            '"Show me what you like about {about}," said {friend} at last. And {hero} did.',
        ),
        (
            '"Now I like {about}, too," said {friend}.',
            "{hero} learned that it is more fun to share {about} with a friend.",
        ),
    ),
)
