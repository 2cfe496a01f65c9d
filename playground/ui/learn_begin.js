// Everything is known by now.
watch("value", attach);
attach();
goOn();
