// Everything is known by now.
buildAsking();
buildFound();
buildPublished();
watch("value", attach);
attach();
goOn();
