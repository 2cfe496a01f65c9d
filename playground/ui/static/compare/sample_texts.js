// The labeled texts that the section Train a classifier starts with.
export const SAMPLE_TEXTS = `text,label
a good film and a fine story,good
what a good film,good
I loved every minute of it,good
a wonderful cast and a clever ending,good
the best evening in a long while,good
funny and warm and never too long,good
beautiful pictures and a moving score,good
I would gladly see it again,good
a great film for the whole family,good
sharp and honest and full of life,good
it made me laugh and think,good
a small masterpiece,good
a bad film and a weak story,bad
what a bad film,bad
I hated every minute of it,bad
a wooden cast and a foolish ending,bad
the worst evening in a long while,bad
dull and cold and far too long,bad
ugly pictures and a noisy score,bad
I would never see it again,bad
a poor film that nobody needs,bad
flat and false and without life,bad
it made me yawn and leave,bad
a complete waste of time,bad
`;
