// All parts are defined at this point.
watch("value", attach);
attach();
goOn();
