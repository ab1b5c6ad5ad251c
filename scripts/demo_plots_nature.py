"""Plots of the worlds where animals live: ice, sea, river, forest, farm, garden, sky."""

from __future__ import annotations

from demo_plot import Plot, world_plot

NATURE_PLOTS: dict[str, tuple[Plot, ...]] = {
    "ice": (
        world_plot(
            "a fishing trip on the ice",
            "silver fish;golden fish",
            (
                "{hero} and {friend} cut a hole into the ice to catch {an_item}. // {hero} heard "
                "that {an_item} swam under the ice, and went fishing with {friend}.",
                "They waited for hours, but no fish came, and their feet got cold. // But the hole "
                "in the ice froze again and again.",
                "{hero} put {his} head into the icy water to look for it, and came up with a beard "
                "of ice. // {hero} jumped up and down on the ice to keep warm, and all the fish "
                "swam away.",
                "Then {friend} began to sing softly. The {item} came to listen and put its head "
                'out of the ice. "Please don\'t eat me," it said. // Suddenly the {item} jumped '
                "out of the sea, right before their feet, and begged for its life.",
                "{hero} let the {item} go, and it showed them where the sea was full of snow "
                "berries. // They let it swim, and since then the {item} has been their friend "
                "under the ice.",
            ),
        ),
        world_plot(
            "a floe of ice",
            "red scarf;warm blanket",
            (
                "{hero} and {friend} slid on the ice by the sea. {hero} wore {an_item}. // {hero} "
                "took {an_item} and went to the edge of the ice with {friend}.",
                "Crack! The ice broke off, and they drifted out to sea on a small floe. // A big "
                "wave came, and their piece of ice swam away into the cold sea.",
                "They paddled with their feet, but the floe only turned round and round in the icy "
                "water. // They called for help, but only the snow and the sea heard them.",
                "Then {hero} held up the {item} like a sail. The cold wind filled it and blew the "
                "floe back. // {hero} waved the {item}, and a friendly whale saw it and pushed the "
                "ice to the shore.",
                "Back on the safe snow they wrapped themselves in the {item}. // The {item} was "
                "wet and frozen, but they were safe on the ice.",
            ),
        ),
    ),
    "sea": (
        world_plot(
            "a treasure in the sea",
            "white pearl;old treasure chest",
            (
                "{hero} heard of {an_item} at the bottom of the sea. // {hero} and {friend} swam "
                "to an old shipwreck to look for {an_item}.",
                "But a grumpy moray guarded the {item} between the corals. // But there it was as "
                "dark as night, and the sea was full of strange noises.",
                "{hero} asked for the {item} politely, but the moray only showed its teeth under "
                "the waves. // {hero} swam in circles and bumped into every rock of the reef.",
                "{friend} saw that the moray had a hook in its mouth. {hero} pulled it out, and "
                "the moray gave them the {item}. // Then {friend} brought a glowing fish, and in "
                "its light they found the {item} in the sand.",
                "The {item} shone through the whole coral reef. // Everybody in the sea came to "
                "see the {item}.",
            ),
        ),
        world_plot(
            "a race through the waves",
            "shell medal;crown of coral",
            (
                "there was a race through the waves. The first would get {an_item}. // {hero} "
                "wanted to win {an_item} in the great race of the sea.",
                "{hero} was fast, but in the middle of the race a strong tide came. // At the reef "
                "{hero} was the last, because all the others had longer fins.",
                "{He} swam as hard as {he} could, but the water pushed {him} back. // {He} tried "
                "to swim through the seaweed and got tangled up.",
                '"Swim below the waves," called {friend}. {hero} dived down deep, where the water '
                "was calm, and was fast again. // Then {hero} saw that {friend} was hurt. {He} "
                "left the race and carried {friend_him} to the reef.",
                "{hero} got the {item}, and all the fish of the sea clapped their fins. // The old "
                "whale gave {hero} the {item}, for the best heart in the sea.",
            ),
        ),
    ),
    "river": (
        world_plot(
            "a flood",
            "hollow log;big wooden bowl",
            (
                "it rained for seven days, and the river rose. {hero} looked for {an_item}. // the "
                "water of the river rose up to the house of {hero}. {He} had only {an_item}.",
                "All the little ones in the reeds cried, for their nests were under water. // On "
                "the other bank {friend} stood on a stone, and the water came nearer.",
                "{hero} tried to swim with one of them on {his} back, but the river was too "
                "strong. // {hero} called for help, but the river was louder.",
                "Then {hero} pushed the {item} into the water and used it as a boat. {friend} "
                "steered it through the reeds. // {hero} tied the {item} to the willow and pulled "
                "everyone over the river, one by one.",
                "When the river was small again, everybody thanked {hero} and the {item}. // Since "
                "then the {item} stands on the bank of the pond, so that nobody forgets that day.",
            ),
        ),
        world_plot(
            "a concert at the pond",
            "flute of reed;drum of bark",
            (
                "there was a concert at the pond, and {hero} wanted to play {an_item}. // {hero} "
                "made {an_item} for the great concert on the bank of the river.",
                "But the {item} fell into the pond and sank. // But when {he} tried the {item}, it "
                "only quacked like an old duck.",
                "{hero} dived for it three times and found only mud and old shoes in the water. // "
                "{hero} practised in the reeds until all the frogs went away.",
                "Then {friend} found the {item} between the water lilies and shook the water out. "
                "// {friend} washed the {item} in the stream, and now it sounded like silver.",
                "That night the whole pond danced to the {item}. // The moon listened, and the "
                "river sang with the {item}.",
            ),
        ),
    ),
    "forest": (
        world_plot(
            "the winter store",
            "sack of nuts;basket of acorns",
            (
                "{hero} hid {an_item} in the forest for the winter. // it was autumn in the "
                "forest, and {hero} gathered {an_item}.",
                "But when the first snow fell, {he} had forgotten under which tree it was. // But "
                "one morning the {item} was gone, and there were only tracks between the trees.",
                "{hero} dug under ten trees and found nothing but stones and old leaves. // {hero} "
                "followed the tracks deep into the woods until {he} was very tired.",
                "Then {friend} remembered the old oak with the two trunks, and there was the "
                "{item}. // The tracks led to a family of hungry mice under a tree. {hero} gave "
                "them half of the {item}.",
                "They made a fire of dry branches and ate from the {item} all evening. // The "
                "{item} was enough for everybody in the forest until spring.",
            ),
        ),
        world_plot(
            "a night in the woods",
            "little lantern;glowing mushroom",
            (
                "{hero} and {friend} went too deep into the forest, and night came. {hero} had "
                "only {an_item}. // {hero} took {an_item} and went through the forest at night.",
                "Two yellow eyes looked at them between the trees. // Every tree looked the same, "
                "and the path was gone under the leaves.",
                "They hid behind an oak and did not dare to breathe. // They walked in a circle "
                "and came back to the same old tree three times.",
                "{hero} held up the {item}. The eyes belonged to an old owl, who showed them the "
                "way out of the woods. // With the light of the {item} {friend} saw the moss on "
                "the trees, which grows in the north. So they found the way.",
                "The {item} hangs on their tree now, so that nobody gets lost in the forest. // At "
                "home under the oak they put the {item} into the window of the den.",
            ),
        ),
    ),
    "farm": (
        world_plot(
            "the harvest",
            "old wheelbarrow;broken cart",
            (
                "the corn was ripe, and everybody on the farm had to help. {hero} got {an_item}. "
                "// {hero} wanted to bring the hay into the barn with {an_item}.",
                "But dark clouds came over the field, and there was so much to do. // But the "
                "{item} lost its wheel in the middle of the meadow.",
                "{hero} pulled and pushed the {item}, but it was stuck in the mud of the field. // "
                "{hero} carried the hay on {his} back, one straw after the other.",
                "Then {friend} called the whole farm. Together they pulled the {item} into the "
                "barn just before the rain. // {friend} rolled a round cheese out of the barn. It "
                "was the best wheel that the {item} ever had!",
                "That evening there was a feast in the barn, and the {item} was full of flowers. "
                "// Everybody on the farm laughed about the {item}, and the hay was dry.",
            ),
        ),
        world_plot(
            "the open gate",
            "red bell;loud whistle",
            (
                "{hero} forgot to close the gate of the meadow. {He} only had {an_item} with "
                "{him}. // somebody left the farm gate open. {hero} saw it first and took "
                "{an_item}.",
                "All the little chicks had run out of the farm and into the high corn. // The "
                "lambs had gone, and the field was empty.",
                "{hero} ran through the corn and called, but the little ones thought that it was a "
                "game. // {hero} looked behind the barn, behind the mill and in the hay.",
                'Then {friend} said, "Use the {item}!" {hero} did, and they all came running to '
                "the barn. // {hero} sounded the {item} like the farmer at dinner time, and they "
                "came over the meadow.",
                "Now the {item} hangs at the gate of the farm. // {hero} closed the gate, and the "
                "{item} was quiet on the farm that night.",
            ),
        ),
    ),
    "wild": (
        world_plot(
            "the dry waterhole",
            "hollow coconut;long bamboo cane",
            (
                "the waterhole was dry, and everybody in the jungle was thirsty. {hero} found "
                "{an_item}. // the sun was so hot that the waterhole dried out. {hero} took "
                "{an_item} and went to look for water.",
                "But the spring was high up in the rocks, where the sun burned. // But a grumpy "
                "old rhino lay on the only spring and slept.",
                "{hero} climbed up and slid down again in the hot sand. // {hero} roared and sang "
                "and danced, but the rhino snored in the grass.",
                "Then {friend} held the {item} under the spring, and the water ran down to the "
                "jungle. // {friend} tickled the rhino with the {item} until it laughed and rolled "
                "aside.",
                "Soon the waterhole was full, and all drank to {hero} and the {item}. // The "
                "jungle was green again, and nobody forgot the {item}.",
            ),
        ),
        world_plot(
            "the king of the jungle",
            "crown of flowers;crown of palm leaves",
            (
                "the jungle wanted a new king. The best one should get {an_item}. // {hero} wanted "
                "to wear {an_item} and be king of the jungle.",
                "The strong ones showed their muscles, and {hero} felt very small in the high "
                "grass. // But first everybody had to do something that nobody else could do in "
                "the jungle.",
                "{hero} tried to roar, but it sounded like a yawn in the grass. // {hero} climbed "
                "a palm tree to be taller, and fell into the bananas.",
                "Then a fire started in the dry grass. All ran away, but {hero} and {friend} "
                "brought water from the waterhole. // Then {friend} was caught in the vines, and "
                "{hero} was the only one in the jungle who stopped to help.",
                '"You are our king," they said and put the {item} on {his} head. And the jungle '
                "sang. // {hero} got the {item}, for a king of the jungle must have a big heart.",
            ),
        ),
    ),
    "house": (
        world_plot(
            "alone in the house",
            "big cheese;fresh apple pie",
            (
                "the people had gone out of the house, and {an_item} stood in the kitchen. // "
                "{hero} and {friend} were alone in the house, and the kitchen smelled of "
                "{an_item}.",
                'But the {item} was on top of the highest shelf in the kitchen. // "Only one '
                'bite," said {hero}. But then the kitchen door fell shut behind them.',
                "{hero} jumped from the chair to the table and fell into the milk. // {hero} "
                "pushed and scratched, but the door of the kitchen did not move.",
                "{friend} climbed on the sofa, {hero} on {friend}, and so they got up to the "
                "{item}. // Then {friend} pulled the rug from under the door, and there was the "
                "key of the kitchen.",
                "When the people came back to the house, only crumbs of the {item} were left in "
                "the kitchen. // They never touched the {item} in the kitchen again, or only a "
                "little.",
            ),
        ),
        world_plot(
            "a noise in the house",
            "old broom;iron pan",
            (
                "{hero} heard a noise on the stairs of the house. {He} took {an_item}. // in the "
                "middle of the night something scratched at the kitchen window. {hero} took "
                "{an_item}.",
                "It came nearer, step by step, up the stairs. // It was dark in the house, and the "
                "clock in the kitchen struck twelve.",
                "{hero} hid behind the sofa, and {his} teeth were chattering. // {hero} and "
                "{friend} crept through the kitchen, close to the wall.",
                "{friend} put on the light. On the stairs sat a little hedgehog who had come in "
                "from the garden. // {hero} pulled the curtain from the window, and there was a "
                "branch that danced in the wind.",
                "They laughed, put the {item} back into the kitchen, and the house was quiet. // "
                "Since then {hero} sleeps in the basket beside the {item}.",
            ),
        ),
    ),
    "garden": (
        world_plot(
            "the thirsty flowers",
            "little watering can;nutshell full of water",
            (
                "it had not rained for weeks, and the flowers of the garden hung their heads. "
                "{hero} had only {an_item}. // {hero} found {an_item} and wanted to save the roses "
                "of the garden.",
                "But the well was far away behind the garden wall. // But there were a thousand "
                "flowers and only one {item}.",
                "{hero} carried the {item} through the grass, and at each leaf some water was "
                "lost. // {hero} went to one flower after the other until {he} was too tired to "
                "move a leg.",
                "Then {friend} called all the little ones of the garden. They made a long chain "
                "from the well to the roses. // {friend} told a cloud a funny story, and it "
                "laughed until it rained on the whole garden.",
                "In the morning all the roses were open, and the {item} lay in the grass. // The "
                "garden smelled of honey, and the {item} was full to the rim.",
            ),
        ),
        world_plot(
            "the stolen honey",
            "pot of honey;drop of gold honey",
            (
                "{hero} kept {an_item} under a leaf in the garden. // there was {an_item} for the "
                "feast of the flowers, and {hero} had to guard it.",
                "But in the morning the {item} was gone, and the leaf was sticky. // But {hero} "
                "fell asleep under a rose, and somebody took the {item}.",
                "{hero} asked every flower in the garden, but flowers do not see at night. // "
                "{hero} followed the sticky drops from leaf to leaf.",
                "{friend} found a little beetle with a round stomach in the grass. It cried and "
                "said sorry. // The drops led to the nest of a hungry caterpillar. {hero} let it "
                "have a part of the {item}.",
                "They made new honey together, and the garden had its feast. // And what was left "
                "of the {item} was enough for all in the garden.",
            ),
        ),
    ),
    "sky": (
        world_plot(
            "the first flight",
            "silver feather;long white feather",
            (
                "{hero} should fly over the valley for the first time. {He} took {an_item} for "
                "luck. // {friend} gave {hero} {an_item} for the long way through the sky.",
                "But high in the air a gust of wind took the {item} away. // But {hero} looked "
                "down from the nest, and everything was so far below.",
                '"I can\'t fly without it," cried {hero}, and {his} wings shook in the wind. // '
                "{hero} closed {his} eyes, jumped, and fell like a stone through the clouds.",
                '"The wind carries you, not the {item}," called {friend}. {hero} spread {his} '
                'wings and flew. // "Open your wings!" called {friend}. And the air held {hero}, '
                "as soft as a pillow.",
                "Now {hero} flies over the clouds every day. The {item} lies in the nest. // The "
                "whole sky was {his} home from then on, with the {item} or without.",
            ),
        ),
        world_plot(
            "a hole in the cloud",
            "golden thread;ball of wool",
            (
                "there was a hole in the biggest cloud of the sky. {hero} took {an_item} to mend "
                "it. // {hero} saw that a cloud was torn. {He} had only {an_item}.",
                "All the rain ran out of the cloud onto the nests. // But the wind was so strong "
                "that the cloud did not keep still.",
                "{hero} pushed the cloud together, but it slipped out of {his} wings like foam. // "
                "{hero} flew around the cloud with the {item} and was soon tied up in the air.",
                "Then {friend} held the cloud, and {hero} sewed with the {item}, through the wind "
                "and back. // {friend} asked the wind to wait for a moment. It did, and {hero} "
                "mended the cloud.",
                "The sky was blue again, and the cloud had a seam of the {item}. // Whoever looks "
                "up to the sky can see the {item} when the sun goes down behind the clouds.",
            ),
        ),
    ),
}
