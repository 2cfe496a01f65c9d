// All parts are defined at this point.
buildAsking();
buildFound();
buildPublished();
watch("value", attach);
attach();
goOn();
